"""The settings of a flow that are needed to translate its offsets: both clusters, and which topic is copied into which.
Plain data."""

from dataclasses import dataclass, replace

from mirror.net.options import ClusterOptions
from mirror.service.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSides:
    """The two sides of a flow.

    Attributes:
        name: name of the flow, "source->destination".
        id: its ``flow.id``.
        source, destination: how to connect to the clusters.
        selection: which topics the flow mirrors, and into which.
        exact: True if offsets are the same on both sides.
        committed: True for ``isolation.level: read_committed``.
    """

    name: str
    id: str
    source: ClusterOptions
    destination: ClusterOptions
    selection: Selection
    exact: bool
    committed: bool

    @property
    def aliases(self) -> tuple[str, str]:
        """The names of the clusters in the configuration."""
        here, _, there = self.name.partition("->")
        return here, there

    def under(self, suffix: str) -> "FlowSides":
        """Returns the same flow, with this suffix added to the client ids of both clusters."""
        return replace(self, source=_under(self.source, suffix), destination=_under(self.destination, suffix))


def _under(options: ClusterOptions, suffix: str) -> ClusterOptions:
    connection = replace(options.connection, client_id=options.connection.client_id + suffix)
    return replace(options, connection=connection)
