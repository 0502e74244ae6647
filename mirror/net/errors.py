"""The errors between the mirror and a broker. Messages name the cluster or broker, and the remedy.

NetworkError         ``slug``: a stable name, for metrics
├── Unreachable        no broker answers at any address
├── WrongCluster       another cluster answers there than before
├── ConnectionLost     the connection is gone: the request may have been executed
│   └── TlsInterrupted   TLS: broken on its way, as when a broker stops in the middle of a handshake: try again
├── RequestTimedOut    no answer within the deadline: the request may have been executed
├── TlsFailed          TLS: one side does not accept the other, or does not speak it
├── AuthenticationFailed  SASL: the broker does not accept us, or there is nothing to authenticate with
├── UnderReplicated    a log's end is not replicated yet: ask again later
├── StorageUnavailable  a broker's tiered storage does not give what it has: ask again later
├── Unsupported        the broker speaks no common version of a request
├── Refused            the broker answered with an error code
│   ├── Unreadable       it fails to read its own log at an offset
│   └── StoredInOldFormat  it answered with messages that are not to be converted
└── Damaged            it answered with bytes that nobody has written
"""

from mirror.net.rights import DENIED, Right
from mirror.wire.errors import ErrorCode, error_name, error_slug


class NetworkError(Exception):
    """Base class of these errors."""

    slug = "network_error"


class Unreachable(NetworkError):
    """No broker of the cluster could be reached. ``refused``: each of those that were tried has refused us, or was
    refused, for its TLS or SASL: another try helps only once the settings or certificates have changed."""

    slug = "unreachable"

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class WrongCluster(NetworkError):
    """The addresses lead to another cluster than they did."""

    slug = "wrong_cluster"


class ConnectionLost(NetworkError):
    """The connection ended with requests unanswered: their outcome is unknown."""

    slug = "connection_lost"


class TlsInterrupted(ConnectionLost):
    """TLS was broken on its way: the other side went away in the middle of a handshake, or a byte was damaged. Another
    try may heal it. Its name in metrics is that of ``TlsFailed``: a port without TLS may look the same."""

    slug = "tls_failed"


class RequestTimedOut(NetworkError):
    """The oldest request was not answered within its deadline. The connection is closed; all outcomes are unknown."""

    slug = "request_timed_out"


class NotSent(RequestTimedOut):
    """It would have been sent later than its caller can answer for, and was not sent at all."""

    slug = "not_sent"


class TlsFailed(NetworkError):
    """No TLS connection can be made: one side does not accept the other. The message has no secret."""

    slug = "tls_failed"


class AuthenticationFailed(NetworkError):
    """The broker does not accept who we are, or there is no password or token. The message has no secret."""

    slug = "authentication_failed"


class UnderReplicated(NetworkError):
    """A log's followers are behind its leader, so that its end may still vanish."""

    slug = "under_replicated"


class StorageUnavailable(NetworkError):
    """An offset is in the tiered storage of its brokers (KIP-405), which does not give it now."""

    slug = "storage_unavailable"


class Unsupported(NetworkError):
    """The broker and the mirror speak no common version of the request."""

    slug = "unsupported"


class Refused(NetworkError):
    """The broker answered with an error code. ``code``: Kafka's. ``lacks``: the right that is missing, if that is the
    error."""

    def __init__(self, what: str, code: int, message: str | None = None, *, needs: Right | None = None) -> None:
        """``needs``: the right that the request needs."""
        self.lacks = needs if code in DENIED else None
        text = f"{what}: {error_name(code)}" + (f", {message}" if message else "")
        super().__init__(text + (f"; the mirror's principal lacks {self.lacks}: grant it" if self.lacks else ""))
        self.code = code
        self.slug = error_slug(code)


class Unreadable(Refused):
    """A broker meets an impossible batch in its log and cannot answer a Fetch (``wire.errors.UNREADABLE``).
    ``cluster``: the name of its cluster."""

    def __init__(self, cluster: str, what: str, code: int) -> None:
        super().__init__(what, code)
        self.cluster = cluster


class StoredInOldFormat(Refused):
    """A log has messages of magic 0 or 1 there, which are not to be converted. ``cluster``: the name of its cluster."""

    def __init__(self, cluster: str, what: str, detail: str) -> None:
        super().__init__(f"{cluster}: {what}", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, detail)
        self.cluster = cluster


class Damaged(NetworkError):
    """A log holds bytes that nobody has written: a wrong checksum, impossible offsets. Asking again helps only once its
    broker's disk was repaired. ``cluster``: the name of its cluster."""

    slug = "damaged"

    def __init__(self, cluster: str, detail: str) -> None:
        super().__init__(f"{cluster}: {detail}")
        self.cluster = cluster
