"""The plan: adds up the findings, partition by partition. Of the partitions, only their numbers are kept, and only of
the first ones in each row."""

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
"""Maximum number of partitions that a row names."""


class Prospect(Enum):
    """The state of a partition in the plan, from the best to the worst."""

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
"""Lines that refuse a topic because of the destination topic's content. ``--fix`` changes nothing of such a topic."""


@dataclass(slots=True, kw_only=True)
class PlanRow:
    """A row of the plan: the same finding for some partitions of a topic.

    Attributes:
        topic: name of the topic; empty: the finding is about the flow.
        finding: the finding for the first of the partitions.
        partitions: number of the partitions; 0 for a finding about the flow.
        named: numbers of the first of them.
    """

    topic: str
    finding: PlanFinding
    partitions: int = 0
    named: list[int] = field(default_factory=list)

    @property
    def only(self) -> int | None:
        """Number of the partition if the row is about a single one; otherwise None."""
        return self.named[0] if self.partitions == 1 and self.named else None

    @property
    def remedy(self) -> str:
        """What to do. The remedy of a halt says how to resume, so a remark is added: what has not halted yet cannot be
        resumed."""
        found = self.finding
        if found.line in (Line.LOOP, Line.SOURCE_RETENTION) and "mirror resume" in found.remedy:
            return f"{found.remedy}. (Only a partition that has halted can be resumed: the mirror has to run for that)"
        if found.line is not Line.HALTED and "mirror resume" in found.remedy:
            return f"{found.remedy}. (Partitions that have not halted yet need no resume: start the mirror instead)"
        return found.remedy


@dataclass(slots=True, kw_only=True)
class TopicRow:
    """The sums of a topic.

    Attributes:
        facts: the topic.
        states: number of its partitions by state.
        need: what has to be copied of it.
        due_ms: timestamp of the oldest record that is due, in ms since 1970; -1: none is due, or it is not known.
        holds: True if the destination topic holds records, or may hold some.
    """

    facts: TopicFacts
    states: Counter[Prospect] = field(default_factory=Counter)
    need: Need = field(default_factory=Need)
    due_ms: int = -1
    holds: bool = False

    @property
    def state(self) -> Prospect:
        """The worst state of its partitions."""
        return max(self.states, key=_ORDER.index, default=Prospect.FITS)


class Report:
    """The plan of one flow. It is made with the flow and its topics; call ``tell`` with each partition, then
    ``finish``.

    Attributes:
        flow: the facts about the flow; complete after ``finish``.
        topics: name -> the sums of the topic.
        estimate: what the copy would take.
    """

    def __init__(self, flow: FlowFacts, found: Iterable[TopicFacts]) -> None:
        self.flow = flow
        self.topics = {each.name: TopicRow(facts=each) for each in found}
        self.estimate = CopyingEstimate()
        self._rows: dict[tuple[str, Line, Level, str], PlanRow] = {}
        self._of_topics: dict[str, Level] = {}
        self._is_one_cluster = any(True for _ in flows.same_cluster(flow))
        """True if source and destination are the same cluster. Then each topic would be its own copy, and remedies for
        a destination topic, one of which is to delete it, would be about the source. So topics are not checked."""
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
        """Checks one partition, and adds its findings. ``topic``: its topic; ``one``: the partition."""
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
            return  # nothing of this partition would be copied
        row.need.add(self.estimate.count(self.flow, topic, one))
        if one.sample is not None and one.sample.due_ms >= 0:
            row.due_ms = one.sample.due_ms if row.due_ms < 0 else min(row.due_ms, one.sample.due_ms)

    def finish(self, flow: FlowFacts) -> None:
        """Adds the findings and estimates for which all partitions have to be known. ``flow``: the facts about the
        flow, with what was measured while the partitions were read."""
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
        """Adds findings about changes to destination topics that look like the mirror's copies. No other destination
        topic is changed: partitions that it lacks are refused."""
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
        """All rows: the most severe first, then by line and topic."""
        return sorted(
            self._rows.values(), key=lambda row: (-row.finding.level, row.finding.line.id, row.topic, row.named)
        )

    @property
    def found(self) -> list[TopicFacts]:
        """The topics, with ``empty`` as the partitions show it."""
        return [replace(row.facts, empty=row.facts.exists and not row.holds) for row in self.topics.values()]

    @property
    def fixable(self) -> list[TopicFacts]:
        """The topics of ``found`` that ``--fix`` may change: those whose destination topic holds nothing that may be
        somebody else's. Topics that would be created without anything being copied into them are left out. Empty if
        source and destination are the same cluster."""
        if self._is_one_cluster:
            return []
        strange = {row.topic for row in self.rows if row.finding.level is Level.REFUSED and row.finding.line in _OTHERS}
        useless = {
            name for name, row in self.topics.items() if row.facts.created and {*+row.states} == {Prospect.REFUSED}
        }
        return [each for each in self.found if each.name not in strange | useless]

    @property
    def partitions(self) -> Counter[Prospect]:
        """Number of partitions by state."""
        found: Counter[Prospect] = Counter()
        for row in self.topics.values():
            found.update(row.states)
        return +found

    @property
    def level(self) -> Level:
        """The level of the most severe finding."""
        return max((row.finding.level for row in self._rows.values()), default=Level.TOLD)


def _joined(first: PlanFinding, more: PlanFinding) -> PlanFinding:
    """Returns one finding with the details and remedies of two that are about the same line and the same topic or
    flow."""
    if more.detail in first.detail:
        return first
    remedy = first.remedy if more.remedy in first.remedy else f"{first.remedy}; {more.remedy}"
    return first._replace(detail=f"{first.detail}; {more.detail}", remedy=remedy)
