"""Rules that hold across flows: an exact copy has one writer, there are no loops, and each flow has its own group."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from mirror.service.config.cluster import ClusterSettings
from mirror.service.config.errors import Path
from mirror.service.config.flow import FlowSettings
from mirror.service.selection import GROUP_REFERENCE, Selection, is_topic_name, topic_pattern

ARROW = "->"
ALL_GROUPS = ".*"

Clusters = Mapping[str, ClusterSettings | None]
Flows = Mapping[str, FlowSettings | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Settings that contradict each other. `path`: one of them. `at`: the other one, whose line is shown if `path` is
    not in the file (a default)."""

    path: Path
    problem: str
    remedy: str
    at: Path = ()


def introduce(clusters: Clusters, flows: Flows) -> None:
    """Sets in each flow the aliases by which its `replication.policy` names topics."""
    for name, flow in flows.items():
        if flow is not None:
            source, _, destination = name.partition(ARROW)
            flow.introduce(source, destination, tuple(clusters))


def same_cluster(clusters: Clusters, one: str, other: str) -> bool:
    """Returns True if two aliases stand for the same cluster, as far as the configuration shows it."""
    here, there = clusters.get(one), clusters.get(other)
    if one == other:
        return True
    return bool(here and there and set(here.bootstrap_servers) & set(there.bootstrap_servers))


def id_conflicts(flows: Flows) -> Iterator[Conflict]:
    """Yields flows that have the same id as another one: each would take the other's batches for its own."""
    known: dict[str, str] = {}
    for name, flow in flows.items():
        flow_id = (flow.flow_id if flow else "") or name
        other = known.setdefault(flow_id, name)
        if other != name:
            yield Conflict(
                path=("flows", name, "flow.id"),
                problem=f"is {flow_id}, and so is that of {other}",
                remedy="give each flow an id of its own",
            )


def enabled_conflicts(clusters: Clusters, flows: Flows, group_id: str) -> Iterator[Conflict]:
    """Yields contradictions among the enabled flows. ``group_id``: the top-level `group.id`; empty: none."""
    enabled = {name: flow for name, flow in flows.items() if flow and flow.enabled}
    if flows and not enabled and None not in flows.values():
        yield Conflict(path=("flows",), problem="no flow is enabled", remedy="set enabled: true on one of them")
    yield from _group_conflicts(clusters, enabled, group_id)
    introduce(clusters, flows)
    yield from _came_back(enabled)
    yield from _written_as_copies(clusters, enabled)
    for (name, flow), (other, its) in combinations(enabled.items(), 2):
        (here, _, there), (its_here, _, its_there) = name.partition(ARROW), other.partition(ARROW)
        if same_cluster(clusters, there, its_there) and "exact" in (flow.offsets, its.offsets):
            topic = _written_by_both(flow.selection, its.selection)
            if topic:
                yield Conflict(
                    path=("flows", other, "topics"),
                    problem=f"{topic} would be written at cluster {its_there} by flow {name} as well, and a topic with "
                    "offsets: exact has one writer",
                    remedy="take it out of one of the two (topics, exclude), or set offsets: mapped on both",
                )
        if (
            same_cluster(clusters, there, its_there)
            and flow.sync_topic_configs_enabled
            and its.sync_topic_configs_enabled
        ):
            topic = _written_by_both(flow.selection, its.selection)
            if topic and flow.offsets == its.offsets == "mapped":
                yield Conflict(
                    path=("flows", other, "sync.topic.configs.enabled"),
                    problem=f"{topic} at cluster {its_there} would be kept in step by flow {name} as well, after "
                    "another source topic: each would undo what the other sets",
                    remedy="set it to false in one of the two, or give their topics different names (topic.rename, "
                    "replication.policy: prefix)",
                )
        if same_cluster(clusters, there, its_there):
            yield from _carried_twice((name, flow), (other, its))
            yield from _merged((name, flow), (other, its))
        if same_cluster(clusters, there, its_here) and same_cluster(clusters, here, its_there):
            topic = _goes_round(flow.selection, its.selection)
            if topic:
                yield Conflict(
                    path=("flows", other, "topics"),
                    problem=f"flow {name} copies {topic}, and this flow would copy it back: a loop",
                    remedy="take it out of one of the two, or set offsets: mapped and replication.policy: prefix on "
                    "both",
                )


def _came_back(enabled: Mapping[str, FlowSettings]) -> Iterator[Conflict]:
    """Yields topics that a flow names but that its `replication.policy` never mirrors: they came from the
    destination."""
    for name, flow in enabled.items():
        for index, entry in enumerate(flow.topics):
            if is_topic_name(entry) and flow.selection.came_from_destination(entry):
                yield Conflict(
                    path=("flows", name, "topics", index),
                    problem=f"{entry} came from cluster {name.partition(ARROW)[2]}, by its prefix, and "
                    "replication.policy: prefix mirrors nothing back",
                    remedy="take it off the list",
                )


def _written_as_copies(clusters: Clusters, enabled: Mapping[str, FlowSettings]) -> Iterator[Conflict]:
    """Yields dead letter topics into which a flow with exact offsets copies: such a topic must have only one writer."""
    for name, flow in enabled.items():
        topic, there = flow.oversize_record_topic, name.partition(ARROW)[2]
        for other, its in enabled.items() if topic else ():
            if (
                same_cluster(clusters, there, other.partition(ARROW)[2])
                and its.offsets == "exact"
                and _may_write(its.selection, topic)
            ):
                yield Conflict(
                    path=("flows", name, "oversize.record.topic"),
                    problem=f"is {topic}, which flow {other} copies into at cluster {there}, and a topic with offsets: "
                    "exact has one writer",
                    remedy=f"give it another name, or add {topic} to exclude of flow {other}",
                )


def _group_conflicts(clusters: Clusters, enabled: Mapping[str, FlowSettings], group_id: str) -> Iterator[Conflict]:
    """Yields flows that would share a group: the group would assign each partition to only one of them."""
    common = [name for name, flow in enabled.items() if not flow.group_id]
    if group_id and len(common) > 1:
        yield Conflict(
            path=("group.id",),
            problem=f"names one group for {len(common)} flows ({', '.join(common)}), which would take each other's "
            "partitions",
            remedy="remove it, or set group.id in each flow",
        )
        return
    known: dict[str, list[str]] = {}
    for name, flow in enabled.items():
        group = flow.group_id or group_id or default_group(flow.flow_id or name)
        source = name.partition(ARROW)[0]
        for other in known.setdefault(group, []):
            if same_cluster(clusters, source, other.partition(ARROW)[0]):
                yield Conflict(
                    path=("flows", name, "group.id"),
                    problem=f"is {group}, and so is that of flow {other}, which has the same source: the two would "
                    "take each other's partitions",
                    remedy="give each flow a group of its own, or leave group.id out",
                )
        known[group].append(name)


def default_group(flow_id: str) -> str:
    """Returns the name of a flow's group if none is configured."""
    return f"mirror-{flow_id}"


def _written_by_both(one: Selection, other: Selection) -> str:
    """Returns a destination topic that both may write, or an expression that both have; empty if none is found.

    Two different expressions may match the same topic. This is only noticed once the topic exists: the flow that comes
    second halts (`other_flow`).
    """
    for here, there in ((one, other), (other, one)):
        for name in here.names:
            written = here.destination_of(name)
            if _may_write(there, written):
                return written
    return _same_expression(one, other)


def _may_write(selection: Selection, topic: str) -> bool:
    """Returns True if there is a source topic that the flow would copy into this topic, if its source had it."""
    sources = [topic, topic.removeprefix(selection.prefix)]
    sources += [entry for entry, name in selection.renames if name == topic and is_topic_name(entry)]
    if any(selection.selects(source) and selection.destination_of(source) == topic for source in sources):
        return True
    return any(
        name == topic and not is_topic_name(entry) and not GROUP_REFERENCE.search(name)
        for entry, name in selection.renames
    )


def _same_expression(one: Selection, other: Selection) -> str:
    if (one.renames, one.prefix) != (other.renames, other.prefix):
        return ""
    return next((entry for entry in one.topics if not is_topic_name(entry) and entry in other.topics), "")


def _carried_twice(one: tuple[str, FlowSettings], other: tuple[str, FlowSettings]) -> Iterator[Conflict]:
    """Yields two mapped flows into the same topic that both carry over the offsets of the same group. Each translates
    the group's position among its own records; the later position lies behind records of the other flow that the group
    has not read."""
    (name, flow), (second, its) = one, other
    if not (flow.sync_group_offsets_enabled and its.sync_group_offsets_enabled):
        return
    topic, group = _written_by_both(flow.selection, its.selection), _carried_by_both(flow, its)
    if topic and group and flow.offsets == its.offsets == "mapped":
        yield Conflict(
            path=("flows", second, "sync.group.offsets.enabled"),
            problem=f"flow {name} writes {topic} at cluster {second.partition(ARROW)[2]} as well, and offsets of "
            f"groups ({group}) would be carried there by both: a group would go to the later of two places, and skip "
            "records",
            remedy="set it to false in one of the two, or give them different groups (groups, groups.exclude) or "
            "topics of different names (topic.rename, replication.policy: prefix)",
        )


def _carried_by_both(one: FlowSettings, other: FlowSettings) -> str:
    """Returns a group, or an expression for groups, whose offsets both carry over; empty if none is found. Two
    different expressions may match the same group; this is only detected if one of them is `ALL_GROUPS`."""
    for here, there in ((one, other), (other, one)):
        for entry in here.groups:
            if is_topic_name(entry):
                if _carries(here, entry) and _carries(there, entry):
                    return entry
            elif not {entry, ALL_GROUPS}.isdisjoint(there.groups) and entry not in {
                *here.groups_exclude,
                *there.groups_exclude,
            }:
                return entry
    return ""


def _carries(flow: FlowSettings, group: str) -> bool:
    return any(topic_pattern(entry).fullmatch(group) for entry in flow.groups) and not any(
        topic_pattern(entry).fullmatch(group) for entry in flow.groups_exclude
    )


def _merged(one: tuple[str, FlowSettings], other: tuple[str, FlowSettings]) -> Iterator[Conflict]:
    """Yields two flows with `replication.policy: prefix` that give the same name to different topics, because one
    prefix begins with the other. For example, with the aliases a and a.b, a.b.t is both b.t of a and t of a.b."""
    (short, shorter), (long, longer) = sorted((one, other), key=lambda each: len(each[1].selection.prefix))
    here, there = shorter.selection, longer.selection
    between = there.prefix.removeprefix(here.prefix)
    if not here.prefix or not between or between == there.prefix:
        return
    # Expressions are tested with one example name.
    names = [*there.names, *(["topic"] if len(there.names) < len(there.topics) else [])]
    names += [name.removeprefix(between) for name in here.names if name.startswith(between)]
    for name in names:
        first, second = f"{between}{name}", name
        if here.selects(first) and there.selects(second):
            into = there.destination_of(second)
            if here.destination_of(first) == into:
                yield Conflict(
                    path=("flows", other[0], "replication.policy"),
                    problem=f"prefix gives two topics the name {into}: {first} of flow {short}, and {second} of flow "
                    f"{long}, since one cluster's alias begins with the other's",
                    remedy="give the clusters aliases without dots, or exclude such topics in one of the two",
                )
                return


def _goes_round(one: Selection, other: Selection) -> str:
    """Returns a topic that one flow copies, and the other, in the opposite direction, copies back into the original; or
    an expression that both have, if neither renames topics. Empty if none is found. Loops that only show once the
    topics exist halt their partitions (`loop`)."""
    for here, there in ((one, other), (other, one)):
        for name in here.names:
            copy = here.destination_of(name)
            if there.selects(copy) and there.destination_of(copy) == name:
                return name
    return "" if one.prefix or one.renames else _same_expression(one, other)
