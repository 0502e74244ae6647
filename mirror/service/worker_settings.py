"""The settings that the service's processes get at their start: resolved, as plain data.

Neither a worker nor the supervisor imports the configuration's model or reads its file: the program that did so has
ended. So they stay small, and run with exactly the settings that were checked.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.net.security.options import Secret, SecurityOptions
from mirror.relay.settings import RelaySettings
from mirror.service.offsets.sides import FlowSides
from mirror.service.selection import Selection, topic_pattern
from mirror.service.sync.settings import SyncSettings
from mirror.service.telemetry.otlp.settings import OtlpSettings

_MADE_HERE = ("selects", "wanted", "destination_of", "topic_rate")
"""Fields of the relay's settings that are functions. They are not packed: ``unpack`` makes them from the selection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of the consumer group at the source. ``instance_id``: empty for dynamic membership. ``flow``: the
    flow's id."""

    group_id: str
    protocol: str = "classic"
    instance_id: str = ""
    session_timeout_ms: int = 10_000
    commit_interval_ms: int = 5_000
    flow: str = ""

    @property
    def mark(self) -> str:
        """Suffix of the client ids of the flow's workers. It distinguishes them from other members of the group, which
        do not copy their partitions."""
        return f"-group-of-{self.flow}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A flow's settings for a worker.

    Attributes:
        number: the worker's number; 0: the settings are not for a particular worker yet (``of_worker``).
        flow: the flow's name.
        own_workers: number of workers for this flow only; 0: it shares those of the pool.
    """

    number: int
    flow: str
    own_workers: int = 0
    source: ClusterOptions
    destination: ClusterOptions
    selection: Selection
    relay: RelaySettings
    group: GroupSettings
    sync: SyncSettings = field(default_factory=SyncSettings)
    snapshot_interval_ms: int = 1_000

    @property
    def flow_id(self) -> str:
        """The flow's identity at the destination (``flow.id``)."""
        return self.relay.flow

    @property
    def sides(self) -> FlowSides:
        """The flow in the form for the translation of offsets."""
        return FlowSides(
            name=self.flow,
            id=self.relay.flow,
            source=self.source,
            destination=self.destination,
            selection=self.selection,
            exact=not self.relay.mapped,
            committed=self.relay.committed,
        )

    def of_worker(self, number: int, seat: int) -> "Handover":
        """Returns the settings for the worker of this number. ``seat``: its number among the flow's workers, from 1;
        with static membership, it becomes part of the ``group.instance.id``."""
        instance_id = f"{self.group.instance_id}-{seat}" if self.group.instance_id else ""
        return replace(self, number=number, group=replace(self.group, instance_id=instance_id))

    def limited_as(self, other: "Handover") -> "Handover":
        """Returns these settings with the limits of ``other``."""
        return self.limited(other.relay.max_bytes_per_second, other.relay.topic_max_bytes_per_second)

    def limited(self, flow: int, topics: Mapping[str, int]) -> "Handover":
        """Returns these settings with other limits. ``flow``: bytes per second of the flow; ``topics``: entry for
        topics -> bytes per second of each."""
        relay = replace(
            self.relay,
            max_bytes_per_second=flow,
            topic_max_bytes_per_second=dict(topics),
            topic_rate=topic_rate(topics),
        )
        return replace(self, relay=relay)

    def pack(self) -> dict[str, Any]:
        """Returns the settings as plain data, for JSON."""
        return {
            "number": self.number,
            "flow": self.flow,
            "own_workers": self.own_workers,
            "source": asdict(self.source),
            "destination": asdict(self.destination),
            "selection": asdict(self.selection),
            "relay": {
                field.name: getattr(self.relay, field.name)
                for field in fields(self.relay)
                if field.name not in _MADE_HERE
            },
            "group": asdict(self.group),
            "sync": self.sync.pack(),
            "snapshot_interval_ms": self.snapshot_interval_ms,
        }

    @classmethod
    def unpack(cls, data: Mapping[str, Any]) -> "Handover":
        """Restores what ``pack`` returned, also through JSON, which has lists but no tuples."""
        chosen = data["selection"]
        renames = tuple((entry, name) for entry, name in chosen["renames"])
        selection = Selection(**{**_tuples(chosen), "renames": renames})
        return cls(
            number=data["number"],
            flow=data["flow"],
            own_workers=data["own_workers"],
            source=_cluster(data["source"]),
            destination=_cluster(data["destination"]),
            selection=selection,
            relay=RelaySettings(
                **_tuples(data["relay"]),
                **selecting(selection),
                topic_rate=topic_rate(data["relay"]["topic_max_bytes_per_second"]),
            ),
            group=GroupSettings(**data["group"]),
            sync=SyncSettings.unpack(data["sync"]),
            snapshot_interval_ms=data["snapshot_interval_ms"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """The supervisor's settings.

    Attributes:
        flows: the settings of each flow, not for a particular worker.
        pool: number of worker processes that are shared by the flows without workers of their own.
        http_listen: host and port of the HTTP server.
        http_token: token that clients need for changes; empty: see ``service.http.guard``.
        audit_files: flow -> path of the file of its last audit, for flows that have one.
        otlp: settings of the export to OpenTelemetry; None: no export.
        metrics_granularity: "partition" or "topic": with or without the label partition.
        log_level: lowest level that is logged.
        progress_interval_ms: time between two log lines about progress.
        drain_timeout_ms: time that workers have to drain.
        workers_option: value of ``--workers``; None: it was not given.
        fail_fast: True to give up even if waiting might help.
    """

    flows: tuple[Handover, ...]
    pool: int
    http_listen: tuple[str, int]
    log_level: str
    progress_interval_ms: int
    drain_timeout_ms: int
    http_token: Secret = field(default_factory=Secret)
    audit_files: Mapping[str, str] = field(default_factory=dict)
    otlp: OtlpSettings | None = None
    metrics_granularity: str = "partition"
    workers_option: int | None = None
    fail_fast: bool = False

    def pack(self) -> dict[str, Any]:
        """Returns the settings as plain data, for JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        otlp = None if self.otlp is None else asdict(self.otlp)
        secret = asdict(self.http_token)
        return {**plain, "http_token": secret, "flows": [flow.pack() for flow in self.flows], "otlp": otlp}

    @classmethod
    def unpack(cls, data: Mapping[str, Any]) -> "Supervision":
        """Restores what ``pack`` returned, also through JSON."""
        flows = tuple(Handover.unpack(flow) for flow in data["flows"])
        otlp = None if data["otlp"] is None else OtlpSettings.unpack(data["otlp"])
        return cls(**{**_tuples(data), "http_token": Secret(**data["http_token"]), "flows": flows, "otlp": otlp})


def selecting(selection: Selection) -> dict[str, Any]:
    """Returns the fields of the relay's settings that follow from the selection: name -> value."""
    return {
        "selects": selection.selects,
        "wanted": {entry: topic_pattern(entry).fullmatch for entry in selection.topics},
        "destination_of": selection.destination_of,
    }


def topic_rate(rates: Mapping[str, int]) -> Callable[[str], int] | None:
    """Returns the function topic -> bytes per second for the entries of `topic.max.bytes.per.second`, or None if there
    are none. If several entries match, the lowest rate counts; if none does, the function returns 0."""

    def rate(topic: str) -> int:
        return min((most for entry, most in rates.items() if topic_pattern(entry).fullmatch(topic)), default=0)

    return rate if rates else None


def _cluster(data: Mapping[str, Any]) -> ClusterOptions:
    connection = data["connection"]
    rest = {name: value for name, value in data.items() if name not in ("bootstrap", "connection")}
    return ClusterOptions(
        bootstrap=tuple((host, port) for host, port in data["bootstrap"]),
        connection=ConnectionOptions(**{**connection, "security": SecurityOptions.unpack(connection["security"])}),
        **rest,
    )


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
