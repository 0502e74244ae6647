"""What can go wrong between here and a broker. Messages name the cluster or broker, and the remedy.

NetworkError         ``slug``: a stable name, for metrics
├── Unreachable        nobody answers at any address
├── WrongCluster       another cluster answers there than before
├── ConnectionLost     it was there and is gone: what was asked may have been done
├── RequestTimedOut    no answer within the deadline: the same
├── UnderReplicated    a log's end is not replicated yet: ask again later
├── Unsupported        the broker speaks no common version of a request
├── Refused            the broker answered with an error code
│   └── Unreadable       it fails at what its own log holds at an offset
└── Damaged            it answered with bytes that nobody has written
"""

from mirror.wire.errors import error_name, error_slug


class NetworkError(Exception):
    """Base of all of them."""

    slug = "network_error"


class Unreachable(NetworkError):
    """No broker of the cluster could be reached."""

    slug = "unreachable"


class WrongCluster(NetworkError):
    """The addresses lead to another cluster than they did."""

    slug = "wrong_cluster"


class ConnectionLost(NetworkError):
    """The connection ended with requests unanswered: their outcome is unknown."""

    slug = "connection_lost"


class RequestTimedOut(NetworkError):
    """The oldest request was not answered within its deadline; the connection is closed, outcomes are unknown."""

    slug = "request_timed_out"


class UnderReplicated(NetworkError):
    """A log's followers are behind its leader, so that its end may still vanish."""

    slug = "under_replicated"


class Unsupported(NetworkError):
    """No version of the request is spoken by both sides."""

    slug = "unsupported"


class Refused(NetworkError):
    """An error code where only success makes sense; ``code`` is Kafka's."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {error_name(code)}" + (f", {message}" if message else ""))
        self.code = code
        self.slug = error_slug(code)


class Unreadable(Refused):
    """What a broker says to a Fetch when it meets a batch that cannot be (``wire.errors.UNREADABLE``). ``cluster`` is
    the name of whose it is."""

    def __init__(self, cluster: str, what: str, code: int) -> None:
        super().__init__(what, code)
        self.cluster = cluster


class Damaged(NetworkError):
    """A log that was read holds what nobody has written: a wrong checksum, offsets that cannot be. Asking again helps
    only once its broker's disk was repaired; ``cluster`` is the name of whose it is."""

    slug = "damaged"

    def __init__(self, cluster: str, detail: str) -> None:
        super().__init__(f"{cluster}: {detail}")
        self.cluster = cluster
