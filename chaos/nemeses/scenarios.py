"""Scenarios of random nemeses, several at once, from a seed: see ``chaos.nemeses``."""

import re
from collections.abc import Sequence

from chaos.judging.halting import Halting
from chaos.nemeses import NEMESES as ALL
from chaos.nemeses import draw
from chaos.nemeses.data import before_it_is_remade
from chaos.nemeses.play import play
from chaos.play.catching import reach
from chaos.play.sides import Name
from chaos.play.stage import Stage
from chaos.producers.topics import EVERYONE, GAPS, MORE_JAVA, NEMESES
from chaos.scenario import Shape, scenario
from chaos.scenarios.mapped import MAPPED
from chaos.waiting import until
from lab.evidence import STRUCK

GROUP = "Nemeses"
OVERFILLED = "overfilled"
REPEATED = 2
"""Maximum number of repeated markers behind a copy. The mirror fills one offset at a time, and looks before it goes on.
There may be two, because a second leader may die while the coordinator repeats the marker for the first one."""
LOSING = ("overtaken", "retention")
"""Nemeses that delete records before they are copied. A flow goes on behind such a gap only with ``on.gap:
continue``."""
HOLED = ("transactional", "java", "copier", "keyed")
"""Kinds of producers (``TopicPlan.writing``) whose topics have holes: markers, or what a cleaner has removed."""
USUAL = [one for one in ALL.values() if one.name not in LOSING]
EVERY = list(ALL.values())
TOPICS = (*EVERYONE, *MORE_JAVA, *NEMESES)
TOP = {"session.timeout.ms": 4_000}
"""With this timeout, some frozen workers are out of the group before they are resumed, and some are not."""
FLOW = {"refresh.topics.interval.ms": 2_000}
GOES_ON = {**FLOW, "on.gap": "continue"}
OLDER, NEWER = "3.9.2", "4.3.0"
BROKERS = (
    ("log.cleaner.backoff.ms", "300"),
    ("log.initial.task.delay.ms", "500"),
    ("log.retention.check.interval.ms", "1000"),
)
SHAPE = Shape(source=BROKERS, destination=BROKERS)
ORDERED = (*BROKERS, ("auto.leader.rebalance.enable", "false"))
"""With these broker properties, leaders move only when a nemesis moves them. Otherwise brokers would move leaders every
five minutes. With ``fill: transaction``, a leader that moves while a hole is filled may cause a halt, and that could
happen after all nemeses have ended."""
STRUCK_ALL = (STRUCK.times(len(USUAL)),)
WHAT = (
    "several at once, drawn from a seed: workers and supervisors killed, frozen and restarted, a third mirror that "
    "comes and goes; brokers of both sides killed, frozen and restarted, leaders and partitions moved; partitions "
    "added, copied records deleted at the source, compaction at both sides, a source topic deleted and made again"
)


def _play(stage: Stage) -> None:
    for _ in stage.repeat():
        before_it_is_remade(stage)
        stage.start_mirror(workers=1)
        menu = EVERY if any(plan.name == f"{stage.prefix}-{LOSING[0]}" for plan in stage.topics) else USUAL
        schedule = draw(f"{stage.scenario.name}/{stage.draw}", menu, len(menu))
        stage.figure(f"seed {stage.draw}: {'; '.join(map(str, schedule))}")
        play(stage, schedule)
        stage.pair.heal()
        stage.recovered()
        for topic, _ in list(stage.halts.expected):
            stage.halts.expect(topic)


@scenario(
    "nemeses-exact", group=GROUP, full=10, quick=1, shape=SHAPE, topics=TOPICS, top=TOP, flow=FLOW, workers=2,
    struck=STRUCK_ALL, acknowledged=True, does=WHAT,
)  # fmt: skip
def exact(stage: Stage) -> None:
    _play(stage)


@scenario(
    "nemeses-mapped", group=GROUP, full=10, quick=1, shape=SHAPE, topics=TOPICS, top=TOP, flow={**FLOW, **MAPPED},
    workers=2, exact=False, struck=STRUCK_ALL, acknowledged=True, does="mapped: the same",
)  # fmt: skip
def mapped(stage: Stage) -> None:
    _play(stage)


@scenario(
    "nemeses-gaps", group=GROUP, full=5, quick=1, shape=SHAPE, topics=(*TOPICS, *GAPS), top=TOP, flow=GOES_ON,
    workers=2, struck=(STRUCK.times(len(EVERY)),), acknowledged=True,
    does="the same with on.gap: continue, while the source deletes records that were not copied, by order and by "
    "retention: what is told as skipped is what is missing",
)  # fmt: skip
def gaps(stage: Stage) -> None:
    _play(stage)


@scenario(
    "nemeses-gaps-mapped", group=GROUP, full=5, quick=1, shape=SHAPE, topics=(*TOPICS, *GAPS), top=TOP,
    flow={**GOES_ON, **MAPPED}, workers=2, exact=False, struck=(STRUCK.times(len(EVERY)),), acknowledged=True,
    does="mapped: the same",
)  # fmt: skip
def gaps_mapped(stage: Stage) -> None:
    _play(stage)


@scenario(
    "nemeses-from-3.9", group=GROUP, full=5, quick=1, topics=TOPICS, top=TOP, flow=FLOW, workers=2,
    shape=Shape(source=BROKERS, destination=BROKERS, version=OLDER, destination_version=NEWER),
    struck=STRUCK_ALL, acknowledged=True, does=f"as nemeses-exact, from Kafka {OLDER} to {NEWER}",
)  # fmt: skip
def from_older(stage: Stage) -> None:
    _play(stage)


@scenario(
    "nemeses-to-3.9", group=GROUP, full=5, quick=1, topics=TOPICS, top=TOP, flow={**FLOW, **MAPPED}, workers=2,
    shape=Shape(source=BROKERS, destination=BROKERS, version=NEWER, destination_version=OLDER),
    exact=False, struck=STRUCK_ALL, acknowledged=True, does=f"mapped: the same from Kafka {NEWER} to {OLDER}",
)  # fmt: skip
def to_older(stage: Stage) -> None:
    _play(stage)


@scenario(
    "nemeses-transaction", group=GROUP, full=5, quick=1, shape=Shape(source=ORDERED, destination=ORDERED),
    topics=TOPICS, top=TOP, flow={**FLOW, "fill": "transaction"}, workers=2, struck=STRUCK_ALL, acknowledged=True,
    does="as nemeses-exact with fill: transaction: holes are filled by transactions that end aborted. Where a leader "
    "dies meanwhile, the coordinator may repeat a marker: that partition halts, its copy is right up to there",
)  # fmt: skip
def by_transactions(stage: Stage) -> None:
    holed = {plan.name for plan in stage.topics if plan.writing in HOLED}
    names = [name for name in stage.names if name[0] in holed]
    for name in names:
        stage.halts.tolerate(name, OVERFILLED)
    _play(stage)
    _filled(stage, names)


def _filled(stage: Stage, names: Sequence[Name]) -> None:
    """Waits until each partition is copied, or has halted at a repeated marker. A copied partition may not halt any
    more; of a halted one, the copy has to end at the marker."""
    due = until(lambda: stage.source.ends(names, committed=True), "the source's ends")
    halted: dict[Name, str] = {}

    def has_halted(name: Name) -> bool:
        halted.update({name: one.detail for mirror in stage.mirrors for name, one in mirror.halts.items()})
        return name in halted

    # Each hole takes a separate transaction. On a busy machine this is slow, but it moves.
    reach(stage, due, but=has_halted)
    ends = until(lambda: stage.destination.ends(names), "the destination's ends")
    for name in names:
        if name not in halted:
            stage.halts.no_more(name)
            continue
        # The first of these offsets is the marker's. There are two wordings: the source has a record there, or it ends
        # there.
        at = int(re.findall(r"(?:at offset|and the source at) (\d+)", halted[name])[0])
        figure = f"{name[0]}-{name[1]}: a marker was repeated at offset {at}"
        if moved := re.search(r"own records at offsets (\d+) to (\d+) stand behind", halted[name]):
            # Batches that were in flight when the marker was written stand one offset too far, and consumers get them
            # there (docs/LIMITS.md).
            strangers, unseen = ends[name] - at, False
            figure += f"; {int(moved[2]) - int(moved[1]) + 1} offsets of the flow's stand behind it, moved"
        else:
            # Only the marker stands there, and no record.
            strangers, unseen = min(max(1, ends[name] - at), REPEATED), True
        stage.halts.expected[name] = Halting(reason=OVERFILLED, ends=(at, at), strangers=strangers, unseen=unseen)
        stage.figure(figure)


@scenario(
    "nemeses-gaps-from-3.9", group=GROUP, full=5, quick=1, topics=(*TOPICS, *GAPS), top=TOP, flow=GOES_ON, workers=2,
    shape=Shape(source=BROKERS, destination=BROKERS, version=OLDER, destination_version=NEWER),
    struck=(STRUCK.times(len(EVERY)),), acknowledged=True, does=f"as nemeses-gaps, from Kafka {OLDER} to {NEWER}",
)  # fmt: skip
def gaps_from_older(stage: Stage) -> None:
    _play(stage)
