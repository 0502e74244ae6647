"""Checks that both sides hold all acknowledged records. The destination may lack those that were reported as
skipped."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chaos.judging.acknowledged import Acknowledged, content_of, deletable, judge_skipped, surviving, unkept
from chaos.judging.reading import Isolation, Reading, read, read_together
from chaos.play.sides import Name
from chaos.waiting import until

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["inquest", "keeping", "suffix"]

_SHOWN = 300


def keeping(stage: "Stage", names: Sequence[Name]) -> None:
    """Compares both sides with the acknowledgements to the writers. Problems go into the stage's outcome.

    Args:
        stage: the stage; its streams have ended.
        names: the partitions that are copied to their end. Halted partitions are checked by ``judging.halting``.
    """
    out, exact = stage.outcome, stage.scenario.exact
    all_told = Acknowledged()
    for stream in stage.streams:
        all_told.add(stream.acknowledged)
    told = all_told.of(names)
    views: list[tuple[str, Isolation]] = [(side.bootstrap_servers, "read_committed") for side in stage.pair.sides]
    here, there = read_together(views, names, by=content_of)
    starts = until(lambda: stage.source.starts(stage.trimmed), "the source's log starts") if stage.trimmed else {}
    skipped = _skipped(stage)
    out.figures.append(f"{all_told.count} records acknowledged to the writers")
    out.problems += [
        f"{topic} is compacted: {said}" for topic, index in stage.survivors
        for said in surviving(told.placed.get((topic, index), {}), here[topic, index], there[topic, index], exact=exact)
    ]  # fmt: skip
    whole = Acknowledged(
        placed={name: ones for name, ones in told.placed.items() if name not in stage.survivors},
        ordered=told.ordered, deaf=told.deaf,
    )  # fmt: skip
    out.problems += [f"the source itself: {said}" for said in unkept(whole, here, exact=True, starts=starts)]
    copied = Acknowledged(
        placed={name: _without(ones, skipped.get(name, ())) for name, ones in whole.placed.items()},
        ordered=told.ordered,
    )  # fmt: skip
    out.problems += [f"acknowledged: {said}" for said in unkept(copied, there, exact=exact, source=here)]
    if twice := sum(len(here[name]) - len(set(here[name].values())) for name in whole.placed):
        out.figures.append(f"{twice} records stand twice at the source itself, by their producer")
    for name, ranges in skipped.items():
        out.figures.append(
            f"{sum(end - start for start, end in ranges)} offsets of {name[0]}-{name[1]} told as skipped"
        )
        gap = deletable(stage.gaps.get(name), starts.get(name, 0))
        out.problems += judge_skipped(
            name, ranges, gap, whole.placed.get(name, {}), there.get(name, {}), exact=exact
        )  # fmt: skip
    written = [plan.name for plan in stage.topics if plan.writing != "nobody"]
    out.problems += [f"nothing of {topic} was acknowledged" for topic in all_told.silent(written)]


def inquest(stage: "Stage") -> None:
    """Finds out, after a stage has failed, whether the source itself has lost acknowledged records. Then the mirror is
    right.

    The answer becomes a figure of the outcome, also if it could not be found out.
    """
    out, told = stage.outcome, Acknowledged()
    try:
        for stream in stage.streams:
            stream.stop()
            told.add(stream.acknowledged)
        stage.pair.heal()
        whole = {name: ones for name, ones in told.placed.items() if name not in stage.survivors}
        starts = stage.source.starts(stage.trimmed) if stage.trimmed else {}
        here = read(stage.source.bootstrap_servers, list(whole), "read_committed", by=content_of)
        lost = unkept(Acknowledged(placed=whole), here, exact=True, starts=starts)
        out.figures.append(f"afterwards the source lacks: {'; '.join(lost) or 'nothing'}, of {told.count} acknowledged")
    except Exception as error:
        out.figures.append(f"what the source has was not to be found out afterwards: {error!r}"[:_SHOWN])


def _skipped(stage: "Stage") -> dict[Name, list[tuple[int, int]]]:
    """Returns partition -> the ranges of offsets that any of the mirrors has reported as skipped."""
    found: dict[Name, list[tuple[int, int]]] = {}
    for mirror in stage.mirrors:
        for name, start, end in mirror.skipped:
            found.setdefault(name, []).append((start, end))
    return found


def _without(ones: Mapping[int, bytes], ranges: Sequence[tuple[int, int]]) -> dict[int, bytes]:
    return {at: one for at, one in ones.items() if not any(start <= at < end for start, end in ranges)}


def suffix(here: Reading, there: Reading, names: Sequence[Name]) -> Reading:
    """Returns a reading of the destination in which these partitions have only their last records, as many as the
    source has left. For copies with other offsets.

    Args:
        here: the source's records.
        there: the destination's records.
        names: the partitions to shorten.
    """
    cut = {name: dict(list(there[name].items())[max(0, len(there[name]) - len(here[name])) :]) for name in names}
    return {**there, **cut}
