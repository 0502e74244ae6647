"""What a control connection is used for. A cluster has one for each use and broker."""

from enum import Enum


class Use(Enum):
    """Requests that may hold each other up share a connection; a broker answers one after the other on each."""

    ASKING = "asking"
    """Requests that are answered at once."""
    WRITING = "writing"
    """Requests whose answers wait for followers, and for which a quota may throttle the connection."""
    MARKING = "marking"
    """WriteTxnMarkers, and nothing else. A broker that throttles a connection reads nothing from it for as long as it
    says, and does afterwards what was sent there, even if nobody waits any more. No quota concerns these requests, so
    that here none of them comes later than it was sent (``docs/BROKERS.md#a-throttled-connection-is-not-read``)."""
