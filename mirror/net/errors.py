"""The errors of requests to brokers. Messages name the cluster or broker, and the remedy.

NetworkError         ``slug``: a stable name, for metrics
├── Unreachable        no broker answers at any address
├── WrongCluster       another cluster answers at these addresses than before
├── ConnectionLost     the connection is gone: the request may have been executed
│   └── TlsInterrupted   TLS broke off, as when a broker stops in the middle of a handshake: try again
├── RequestTimedOut    no answer within the deadline: the request may have been executed
├── TlsFailed          TLS: one side does not accept the other, or does not speak it
├── AuthenticationFailed  SASL: the broker does not accept us, or there is nothing to authenticate with
├── UnderReplicated    a log's end is not replicated yet: ask again later
├── StorageUnavailable  an offset is in tiered storage, which does not deliver it now: ask again later
├── Unsupported        the broker speaks no common version of a request
├── Refused            the broker answered with an error code
│   ├── Unreadable       the broker fails to read its own log at an offset
│   └── StoredInOldFormat  the log has messages of magic 0 or 1 there, and conversion is not enabled
└── Damaged            the broker answered with corrupt data
"""

from mirror.net.rights import DENIED, Right
from mirror.wire.errors import ErrorCode, error_name, error_slug


class NetworkError(Exception):
    """Base class of the errors of this module."""

    slug = "network_error"


class Unreachable(NetworkError):
    """No broker of the cluster could be reached. ``refused``: True if TLS or SASL failed at every broker that was
    tried. Another try helps only once the settings or certificates have changed."""

    slug = "unreachable"

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class WrongCluster(NetworkError):
    """The addresses lead to another cluster than before."""

    slug = "wrong_cluster"


class ConnectionLost(NetworkError):
    """The connection ended with requests unanswered: their outcome is unknown."""

    slug = "connection_lost"


class TlsInterrupted(ConnectionLost):
    """TLS broke off: the other side went away in the middle of a handshake, or a byte was damaged. Another try may
    succeed. The name in metrics is that of ``TlsFailed``: a port without TLS may look the same."""

    slug = "tls_failed"


class RequestTimedOut(NetworkError):
    """The oldest request was not answered within its deadline. The connection is closed; all outcomes are unknown."""

    slug = "request_timed_out"


class NotSent(RequestTimedOut):
    """The request was not sent: it would have been sent after the time until which its caller permits it."""

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
    """An offset is in the brokers' tiered storage (KIP-405), which does not deliver it now."""

    slug = "storage_unavailable"


class Unsupported(NetworkError):
    """The broker and the mirror speak no common version of the request."""

    slug = "unsupported"


class Refused(NetworkError):
    """The broker answered with an error code. ``code``: Kafka's error code. ``lacks``: the right that is missing, if
    the error is about authorization."""

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
    """A log has messages of magic 0 or 1 at an offset, and conversion is not enabled. ``cluster``: the name of its
    cluster."""

    def __init__(self, cluster: str, what: str, detail: str) -> None:
        super().__init__(f"{cluster}: {what}", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, detail)
        self.cluster = cluster


class Damaged(NetworkError):
    """A log holds corrupt data: a wrong checksum, or impossible offsets. Asking again helps only once the broker's disk
    was repaired. ``cluster``: the name of its cluster."""

    slug = "damaged"

    def __init__(self, cluster: str, detail: str) -> None:
        super().__init__(f"{cluster}: {detail}")
        self.cluster = cluster
