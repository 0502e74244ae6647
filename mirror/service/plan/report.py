"""The plan: what was found, partition by partition, added up. Of partitions, only those that a line names are kept."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from mirror.foretold import Line
from mirror.reasons import ELSEWHERE
from mirror.service.plan import estimate
from mirror.service.plan.checks import batches, deadletters, flows, partitions, rights, topics
from mirror.service.plan.estimate import CopyingEstimate, Need
from mirror.service.plan.model import FlowFacts, Level, PartitionFacts, PlanFinding, TopicFacts

NAMED = 20
"""Partitions that a row names."""


class Prospect(Enum):
    """What would become of a partition, from the best to the worst."""

    FITS = "fits"
    CREATED = "created"
    WARNS = "warns"
    UNKNOWN = "unknown"
    REFUSED = "refused"


_GRAVEST = {Level.REFUSED: Prospect.REFUSED, Level.UNKNOWN: Prospect.UNKNOWN, Level.WARNS: Prospect.WARNS}
_ORDER = list(Prospect)
_OTHERS = frozenset({
    Line.PREFIX, Line.LOOP, Line.OTHER_FLOW, Line.HALTED, Line.RECREATED, Line.UNPROVEN, Line.CHECKPOINT,
})  # fmt: skip
"""Lines that refuse a topic because of what stands at the destination: nothing is changed there."""


@dataclass(slots=True, kw_only=True)
class PlanRow:
    """One finding about partitions of a topic; ``topic`` empty: about the flow. ``partitions``: how many;
    ``named``: the first of them; ``finding``: that of the first."""

    topic: str
    finding: PlanFinding
    partitions: int = 0
    named: list[int] = field(default_factory=list)

    @property
    def only(self) -> int | None:
        """The partition, if it is about a single one."""
        return self.named[0] if self.partitions == 1 and self.named else None

    @property
    def remedy(self) -> str:
        """What to do. Remedies of halts say how to resume: before the first start there is nothing to resume."""
        found = self.finding
        if found.line in (Line.LOOP, Line.SOURCE_RETENTION) and "mirror resume" in found.remedy:
            return f"{found.remedy}. (Only a partition that has halted can be resumed: the mirror has to run for that)"
        if found.line is not Line.HALTED and "mirror resume" in found.remedy:
            return f"{found.remedy}. (Partitions that have not halted yet need no resume: start the mirror instead)"
        return found.remedy


@dataclass(slots=True, kw_only=True)
class TopicRow:
    """A topic. ``states``: its partitions by state; ``due_ms``: time of the oldest record that is due; -1:
    none; ``holds``: whether the destination topic holds records, or may."""

    facts: TopicFacts
    states: Counter[Prospect] = field(default_factory=Counter)
    need: Need = field(default_factory=Need)
    due_ms: int = -1
    holds: bool = False

    @property
    def state(self) -> Prospect:
        """The worst of its partitions'."""
        return max(self.states, key=_ORDER.index, default=Prospect.FITS)


class Report:
    """The plan of one flow. Tell it of the flow and its topics, then of each partition, then ``finish``.

    Attributes:
        flow: the flow, as of the last that was told.
        topics: its topics, by name.
        estimate: what it would take.
    """

    def __init__(self, flow: FlowFacts, found: Iterable[TopicFacts]) -> None:
        self.flow = flow
        self.topics = {each.name: TopicRow(facts=each) for each in found}
        self.estimate = CopyingEstimate()
        self._rows: dict[tuple[str, Line, Level, str], PlanRow] = {}
        self._of_topics: dict[str, Level] = {}
        self._is_one_cluster = any(True for _ in flows.same_cluster(flow))
        """Then each topic would be its own copy, and whoever writes to the source is no stranger there: remedies for a
        destination, of which one is to delete the topic, would be about the source."""
        for check in (*flows.CHECKS, rights.of_flow, deadletters.of_flow):
            for finding in check(flow):
                self._add("", finding)
        for topic in self.topics.values() if not self._is_one_cluster else ():
            self._tell_topic(topic.facts)

    def _tell_topic(self, topic: TopicFacts) -> None:
        for check in (*topics.CHECKS, rights.of_topic, deadletters.of_topic):
            for finding in check(self.flow, topic):
                self._add(topic.name, finding, count=topic.partitions)
                self._of_topics[topic.name] = max(self._of_topics.get(topic.name, Level.TOLD), finding.level)

    def tell(self, topic: TopicFacts, one: PartitionFacts) -> None:
        """Tells of one partition."""
        if self._is_one_cluster:
            self.topics[topic.name].states[Prospect.REFUSED] += 1
            return
        gravest = self._of_topics.get(topic.name, Level.TOLD)
        for check in (*partitions.CHECKS, *batches.CHECKS):
            for finding in check(self.flow, topic, one):
                self._add(topic.name, finding, index=one.index)
                gravest = max(gravest, finding.level)
        self.topics[topic.name].holds |= bool(one.unknown) or one.there_end > one.there_start
        made = topic.created or (topic.grown and one.index >= topic.partitions_there)
        row = self.topics[topic.name]
        row.states[_GRAVEST.get(gravest, Prospect.CREATED if made else Prospect.FITS)] += 1
        if gravest is Level.REFUSED:
            return  # nothing of it is copied
        row.need.add(self.estimate.count(self.flow, topic, one))
        if one.sample is not None and one.sample.due_ms >= 0:
            row.due_ms = one.sample.due_ms if row.due_ms < 0 else min(row.due_ms, one.sample.due_ms)

    def finish(self, flow: FlowFacts) -> None:
        """Predicts, once all partitions were told of. ``flow``: with what was measured meanwhile."""
        self.flow = flow
        if not self._is_one_cluster:
            self._tell_changes()
        self.estimate.finish(flow, {name: row.need for name, row in self.topics.items()})
        if self._is_one_cluster:
            return
        for finding in (*flows.reached(flow), *flows.unread(flow), *estimate.disk(flow, self.estimate.need.disk)):
            self._add("", finding)
        for row in self.topics.values():
            for finding in estimate.source_retention(flow, row.facts, row.due_ms, self.estimate.at_least_s):
                self._add(row.facts.name, finding, count=row.facts.partitions)
                for state in (Prospect.FITS, Prospect.CREATED):
                    row.states[Prospect.WARNS] += row.states.pop(state, 0)

    def _tell_changes(self) -> None:
        """Tells what is changed of destination topics that are the mirror's copies, as far as was seen. Others are left
        alone: partitions that the source has more of are refused."""
        strange = {row.topic for row in self.rows if row.finding.reason in ELSEWHERE}
        for name, row in self.topics.items():
            if name not in strange:
                for finding in topics.altered(self.flow, row.facts):
                    self._add(name, finding, count=row.facts.partitions)
            elif row.facts.grown:
                del self._rows[name, Line.PARTITIONS, Level.TOLD, ""]
                row.facts = replace(row.facts, grown=False)
                more = row.facts.partitions - row.facts.partitions_there
                self._add(name, topics.not_grown(self.flow, row.facts), count=more)
                row.states[Prospect.REFUSED] += row.states.pop(Prospect.CREATED, 0)

    def _add(self, topic: str, finding: PlanFinding, *, index: int = -1, count: int = 1) -> None:
        key = topic, finding.line, finding.level, finding.reason
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = PlanRow(topic=topic, finding=finding)
        elif index < 0 and finding != row.finding:
            row.finding = _joined(row.finding, finding)
        row.partitions += 1 if index >= 0 else count if topic else 0
        if index >= 0 and len(row.named) < NAMED:
            row.named.append(index)

    # -- what it comes to --------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list[PlanRow]:
        """All rows: the gravest first, then by line and topic."""
        return sorted(
            self._rows.values(), key=lambda row: (-row.finding.level, row.finding.line.id, row.topic, row.named)
        )

    @property
    def found(self) -> list[TopicFacts]:
        """The topics, with what the partitions show of them."""
        return [replace(row.facts, empty=row.facts.exists and not row.holds) for row in self.topics.values()]

    @property
    def fixable(self) -> list[TopicFacts]:
        """Those of ``found`` at whose destination nothing stands that may be somebody else's. Topics that would be
        created, and nothing copied into them, are left out; and all, if there is but one cluster."""
        if self._is_one_cluster:
            return []
        strange = {row.topic for row in self.rows if row.finding.level is Level.REFUSED and row.finding.line in _OTHERS}
        useless = {
            name for name, row in self.topics.items() if row.facts.created and {*+row.states} == {Prospect.REFUSED}
        }
        return [each for each in self.found if each.name not in strange | useless]

    @property
    def partitions(self) -> Counter[Prospect]:
        """The partitions by state."""
        found: Counter[Prospect] = Counter()
        for row in self.topics.values():
            found.update(row.states)
        return +found

    @property
    def level(self) -> Level:
        """The gravest of all findings."""
        return max((row.finding.level for row in self._rows.values()), default=Level.TOLD)


def _joined(first: PlanFinding, more: PlanFinding) -> PlanFinding:
    """Returns a finding that says what both say, of one line and one topic or flow."""
    if more.detail in first.detail:
        return first
    remedy = first.remedy if more.remedy in first.remedy else f"{first.remedy}; {more.remedy}"
    return first._replace(detail=f"{first.detail}; {more.detail}", remedy=remedy)
