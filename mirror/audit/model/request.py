"""The request of an audit: the clusters, the topics, and the flow's settings that the audit judges by."""

from collections.abc import Callable
from dataclasses import dataclass

from mirror.net.security.options import PLAINTEXT, SecurityOptions

DIGESTS = ("xxh3_128", "sha256")
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
FILLS = ("markers", "transaction")
OFFSETS = ("exact", "mapped")
ACCEPTABLE = ("unverifiable", "oversize")
"""Kinds of findings that a configuration may accept by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How to reach a cluster. ``alias`` is its name in the configuration and in every message."""

    alias: str
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "mirror-audit"
    request_timeout_s: float = 30.0
    setup_timeout_s: float = 10.0
    security: SecurityOptions = PLAINTEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """The scope and settings of one audit.

    ``topics`` are names that must exist on both clusters. ``selects``, if given, picks further topics of the source,
    but never internal ones.
    ``catch_up_s`` is how long the destination may take to reach the source's end. That end is frozen first, and a
    running mirror has batches on their way. ``isolation_level`` and ``fill`` are the flow's: they say whether aborted
    data is due at the destination, and whose markers fill its holes. With ``offsets: mapped``, copies have offsets of
    their own, and may be in topics with other names; ``rename`` returns the destination's name of a topic. ``accept``:
    kinds of findings that do not fail the audit (``ACCEPTABLE``). ``append_times``: the destination's broker may put
    the time of the append into batches (``destination.timestamps: append``). ``codec``: the codec in which the flow
    compresses batches that it rewrites (``compression.type``); None: the batch's own. ``rebatches``: the flow makes
    larger batches of small ones in a row (``mode``).
    """

    flow: str
    source: Endpoint
    destination: Endpoint
    topics: tuple[str, ...] = ()
    selects: Callable[[str], bool] | None = None
    digest: str = "xxh3_128"
    catch_up_s: float = 10.0
    isolation_level: str = "read_committed"
    fill: str = "markers"
    offsets: str = "exact"
    rename: Callable[[str], str] | None = None
    accept: frozenset[str] = frozenset()
    append_times: bool = False
    codec: int | None = None
    rebatches: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("digest", self.digest, DIGESTS),
            ("isolation level", self.isolation_level, ISOLATION_LEVELS),
            ("fill", self.fill, FILLS),
            ("offsets", self.offsets, OFFSETS),
            *(("audit.accept", kind, ACCEPTABLE) for kind in self.accept),
        ):
            if value not in known:
                raise ValueError(f"{name} {value!r} is not one of {', '.join(known)}")

    @property
    def mapped(self) -> bool:
        """True if the destination has offsets of its own."""
        return self.offsets == "mapped"

    def destination_of(self, topic: str) -> str:
        """Returns the destination topic of this source topic.

        Raises:
            ValueError: the topic has another name at the destination, with ``offsets: exact``. Readers use the source's
                name there.
        """
        name = self.rename(topic) if self.rename is not None else topic
        if name != topic and not self.mapped:
            raise ValueError(f"topic {topic} is {name} at the destination: only with offsets: mapped")
        return name

    @property
    def committed(self) -> bool:
        """True if aborted data is not due at the destination."""
        return self.isolation_level == "read_committed"
