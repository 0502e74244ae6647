"""The whole configuration: clusters, flows between them, and the rules that hold across them.

Python names are the YAML keys with underscores instead of dots: `fetch.max.bytes` is `fetch_max_bytes`.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from mirror.net.security.options import Secret
from mirror.service.config.across import ARROW, Conflict, default_group, enabled_conflicts, id_conflicts
from mirror.service.config.checks.flows import check_group
from mirror.service.config.checks.otlp import check_endpoint, check_headers
from mirror.service.config.checks.refusal import refused
from mirror.service.config.cluster import ClusterSettings
from mirror.service.config.errors import Path, key_text
from mirror.service.config.flow import FlowSettings
from mirror.service.config.kinds import Choice, Count, HostPort, Listen, Milliseconds, SecretText, Text
from mirror.service.config.settings import Resolved, Settings

CONFLICT = "conflict"
"""The `type` of the pydantic error for settings that are valid by themselves but contradict each other."""

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOKEN = re.compile(r"[!-~]+")
_FLOW_REMEDY = (
    'write "source->destination", without blanks, with the aliases of two clusters; for a second flow between the same '
    "two, give one of them a second alias"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedFlow:
    """A flow with its two clusters looked up."""

    name: str
    source: ClusterSettings
    destination: ClusterSettings
    settings: FlowSettings

    @property
    def id(self) -> str:
        """The flow's identity at the destination (``flow.id``)."""
        return self.settings.flow_id or self.name


class FlowNotChosen(Exception):
    """No flow of this name is enabled, or several flows are enabled and none was named. The message lists them."""


def shell_hint(name: str, flows: Iterable[str]) -> str:
    """Returns a hint for "there is no flow of this name" if a shell has probably cut off the name of one of ``flows``;
    otherwise an empty string. Without quotes, a shell reads ``west->east`` as the word ``west-``, and writes the output
    into the file ``east``."""
    meant = [flow for flow in flows if flow.startswith(f"{name}>")]
    if not meant:
        return ""
    file = meant[0].partition(">")[2]
    return (
        f". Quote it, '{meant[0]}': without quotes, the shell takes > for a redirection, and has written a file {file}"
    )


def _check_clusters(clusters: Mapping[str, ClusterSettings]) -> Mapping[str, ClusterSettings]:
    if not clusters:
        raise refused("names no cluster", "write at least two, each under an alias")
    return clusters


def _check_flows(flows: Mapping[str, FlowSettings]) -> Mapping[str, FlowSettings]:
    if not flows:
        raise refused("names no flow", _FLOW_REMEDY)
    return flows


def _check_token(token: object) -> object:
    """Refuses a token that cannot be sent in a header, and a reference to a token that turned out to be empty."""
    if isinstance(token, Resolved) and not token:
        raise refused("is empty", "the file or the variable has to hold the token; leave the key out to have none")
    if isinstance(token, str) and token and not _TOKEN.fullmatch(token):
        raise refused(
            "has characters that a header cannot carry",
            "write printable ASCII characters without blanks, such as what `openssl rand -hex 32` prints",
        )
    return token


class Config(Settings):
    """The whole configuration file."""

    clusters: Annotated[Mapping[str, ClusterSettings], AfterValidator(_check_clusters)]
    """The Kafka clusters, each under an alias."""
    flows: Annotated[Mapping[str, FlowSettings], AfterValidator(_check_flows)]
    """What is mirrored, each under "source->destination" with the aliases of two clusters."""
    drain_timeout_ms: Annotated[int, Milliseconds(minimum=0)] = 15_000
    """On a clean stop, how long to wait for what is in flight to be acknowledged."""
    progress_interval_ms: Annotated[int, Milliseconds(minimum=100)] = 10_000
    """How often a line on progress is logged."""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Choice(("debug", "info", "warning", "error"), fold=str.lower)
    ] = "info"
    """The least level that is logged. debug: also each line about each partition, where many of a kind are else told
    as their number."""

    workers: Annotated[int, Count(minimum=1, maximum=256)] = 1
    """Processes that copy; all flows without workers of their own share them. `mirror run --workers N` wins."""
    group_id: Annotated[str, AfterValidator(check_group)] = ""
    """Consumer group at the source by which workers, on one machine or many, share the partitions and commit what is
    copied; for one flow. Empty: "mirror-" and the flow's id."""
    group_protocol: Annotated[Literal["classic", "consumer"], Choice(("classic", "consumer"), fold=str.lower)] = (
        "classic"
    )
    """How the group agrees. consumer: the brokers decide (KIP-848, Kafka 4.0), with a session timeout of their own."""
    group_instance_id: Annotated[str, AfterValidator(check_group)] = ""
    """Static membership (KIP-345): each worker is this name and its number, and keeps its partitions over a restart
    within session.timeout.ms. Must differ between machines. Empty: dynamic."""
    session_timeout_ms: Annotated[int, Milliseconds(minimum=1_000)] = 10_000
    """A worker that the group has not heard of for this long loses its partitions to the others."""
    offset_commit_interval_ms: Annotated[int, Milliseconds(minimum=100)] = 5_000
    """How often the group's offsets are committed at the source: for those who watch the lag, and as evidence."""
    http_listen: Annotated[HostPort, Listen()] = HostPort("127.0.0.1", 9464)
    """Where /metrics, health and status are served. Port 0 is any that is free; the log says which."""
    http_token: Annotated[Secret, SecretText(), BeforeValidator(_check_token)] = Secret()
    """What a request to http.listen has to show (`Authorization: Bearer TOKEN`) if it changes something. Empty: changes
    are accepted from this machine if http.listen is a loopback address, and otherwise not at all."""
    metrics_granularity: Annotated[Literal["partition", "topic"], Choice(("partition", "topic"), fold=str.lower)] = (
        "partition"
    )
    """Whether metrics of partitions have one series for each partition, or one for each topic, without the label
    partition."""
    otel_exporter_otlp_endpoint: Annotated[str, Text(), AfterValidator(check_endpoint)] = ""
    """URL of an OpenTelemetry collector (OTLP over HTTP) to which the same metrics are sent. Empty: none."""
    otel_exporter_otlp_headers: Annotated[Secret, SecretText(), AfterValidator(check_headers)] = Secret()
    """Headers for that, "name=value,name=value"; from a file, they are read again for each export."""
    otel_exporter_otlp_timeout: Annotated[int, Milliseconds(minimum=1)] = 10_000
    """Longest time for one export, repeated attempts included."""
    otel_metric_export_interval: Annotated[int, Milliseconds(minimum=1_000)] = 60_000
    """Time from one export to the next."""

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        found = [
            f"{key_text(c.path)}: {c.problem}; {c.remedy}"
            for c in conflicts(self.clusters, self.flows, group_id=self.group_id)
        ]
        if found:
            raise PydanticCustomError(CONFLICT, "{found}", {"found": "\n".join(found)})
        return self

    def enabled_flows(self) -> tuple[ResolvedFlow, ...]:
        """Returns the flows that are enabled, in the order of the file."""
        return tuple(self.resolved(name) for name, flow in self.flows.items() if flow.enabled)

    def enabled_flow(self, name: str = "") -> ResolvedFlow:
        """Returns an enabled flow. ``name``: its name; empty: the only one.

        Raises:
            FlowNotChosen: no such flow is enabled, or several are enabled and ``name`` is empty.
        """
        enabled = self.enabled_flows()
        found = [flow for flow in enabled if name in ("", flow.name)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(flow.name for flow in enabled)
        if not found:
            why = "is not enabled (enabled: false)" if name in self.flows else "is not in this configuration"
            raise FlowNotChosen(f"flow {name} {why}; enabled: {names}{shell_hint(name, self.flows)}")
        raise FlowNotChosen(f"{len(enabled)} flows are enabled: name one of them with --flow ({names})")

    def group_of(self, flow: ResolvedFlow) -> str:
        """Returns the name of the flow's group at its source."""
        return flow.settings.group_id or self.group_id or default_group(flow.id)

    def resolved(self, name: str) -> ResolvedFlow:
        """Returns the flow of this name, which must be in the configuration, enabled or not."""
        source, _, destination = name.partition(ARROW)
        return ResolvedFlow(
            name=name,
            source=self.clusters[source],
            destination=self.clusters[destination],
            settings=self.flows[name],
        )


def conflicts(
    clusters: Mapping[str, ClusterSettings | None], flows: Mapping[str, FlowSettings | None], *, group_id: str = ""
) -> Iterator[Conflict]:
    """Yields contradictions among clusters and flows. None in place of settings: they are invalid by themselves.
    ``group_id``: the top-level `group.id`; empty: none."""
    for alias in clusters:
        if not _ALIAS.fullmatch(alias):
            yield Conflict(
                path=("clusters", alias),
                problem="is not an alias of a cluster",
                remedy="use letters, digits, dots, dashes and underscores",
            )
    for name, flow in flows.items():
        yield from _flow_conflicts(name, flow, clusters)
    yield from id_conflicts(flows)
    yield from enabled_conflicts(clusters, flows, group_id)


def _flow_conflicts(
    name: str, flow: FlowSettings | None, clusters: Mapping[str, ClusterSettings | None]
) -> Iterator[Conflict]:
    path: Path = ("flows", name)
    source, arrow, destination = name.partition(ARROW)
    if not (arrow and _ALIAS.fullmatch(source) and _ALIAS.fullmatch(destination)):
        yield Conflict(path=path, problem="is not the name of a flow", remedy=_FLOW_REMEDY)
        return
    for alias in dict.fromkeys((source, destination)):
        if clusters and alias not in clusters:
            near = difflib.get_close_matches(alias, clusters.keys() - {source, destination}, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known clusters: {', '.join(sorted(clusters))}"
            yield Conflict(path=path, problem=f"there is no cluster {alias}", remedy=hint)
    if source == destination:
        yield Conflict(path=path, problem="source and destination are the same cluster", remedy=_FLOW_REMEDY)
        return
    yield from _cluster_conflicts(path, flow, clusters.get(source), clusters.get(destination))


def _cluster_conflicts(
    path: Path, flow: FlowSettings | None, source: ClusterSettings | None, destination: ClusterSettings | None
) -> Iterator[Conflict]:
    source_alias, _, _ = str(path[-1]).partition(ARROW)
    shared = set(source.bootstrap_servers) & set(destination.bootstrap_servers) if source and destination else set()
    if shared:
        yield Conflict(
            path=path,
            problem="source and destination are the same cluster: their bootstrap.servers share an address",
            remedy="a topic cannot be mirrored onto itself: give each its own bootstrap.servers",
        )
    if flow and source and flow.fetch_max_wait_ms >= source.request_timeout_ms:
        yield Conflict(
            path=(*path, "fetch.max.wait.ms"),
            problem=f"must be less than request.timeout.ms of {source_alias} ({source.request_timeout_ms} ms), "
            f"and is {flow.fetch_max_wait_ms} ms: every fetch that waits for data would time out",
            remedy="lower it, or raise request.timeout.ms",
            at=("clusters", source_alias, "request.timeout.ms"),
        )
