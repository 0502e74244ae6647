"""The end of a stage: stops everything in order, and compares both sides."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from chaos.judging.compare import compare, compare_ends, compare_order
from chaos.judging.halting import judge, judge_order
from chaos.judging.keeping import keeping, suffix
from chaos.judging.reading import Isolation, Reading, read, read_together
from chaos.play.sides import Name, Offsets
from chaos.waiting import until

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["finish", "verify"]

_STABLE_TIMEOUT_S = 120.0


def finish(stage: "Stage", say: Callable[[str], None], over: Callable[[], None]) -> None:
    """Ends the streams, waits until the mirrors have caught up, stops them, and compares both sides. Problems go into
    the stage's outcome.

    Args:
        stage: the stage, whose act has ended.
        say: called with each step, in words.
        over: called when the fault is over and the clusters are healthy again.
    """
    out = stage.outcome
    say("ending the stream")
    for stream in stage.streams:
        stream.stop()
    stage.pair.heal()
    over()
    _stable(stage)
    say("catching up")
    stage.caught_up()
    for mirror in stage.mirrors:
        mirror.stop(healthy=True)
        out.problems += [f"{said}; {mirror.told()}" for said in mirror.conduct.problems]
    out.problems += [f"the proxy: {error!r}" for side in stage.pair.sides for error in side.take_errors()]
    say("comparing")
    verify(stage)


def _stable(stage: "Stage") -> None:
    """Waits until no transaction is open at the source. Then the end offset is the same at both isolation levels."""

    def stable() -> bool:
        ends = stage.source.ends(stage.names)
        return bool(ends) and ends == stage.source.ends(stage.names, committed=True)

    until(stable, "the source's transactions to end", timeout_s=_STABLE_TIMEOUT_S)


def verify(stage: "Stage") -> None:
    """Compares both sides by plain consumers at both isolation levels, and checks end offsets, halts, and the copies of
    halted partitions."""
    out, names, sides = stage.outcome, stage.copied, (stage.source, stage.destination)
    if stage.left:
        stage.compare_since(until(lambda: stage.destination.starts(stage.left), "the destination's log starts"))
    if trimmed := [name for name in stage.trimmed if name in names]:
        stage.compare_since(until(lambda: stage.source.starts(trimmed), "the source's log starts"))
    # If a partition is compacted at both sides, either side may lack records that the other one has.
    whole = [name for name in names if name not in stage.survivors]
    method = compare if stage.scenario.exact else compare_order
    here_at, there_at = stage.source.bootstrap_servers, stage.destination.bootstrap_servers
    views: list[tuple[str, Isolation]] = [
        (here_at, "read_committed"), (there_at, "read_committed"), (there_at, "read_uncommitted")
    ]  # fmt: skip
    read_by = read_together(views, whole)
    # Strangers' aborted records are not part of the copy, but read_uncommitted consumers get them.
    read_by[-1] = _without(stage.strangers, read_by[0], read_by[-1])
    if stage.scenario.exact:
        here, *found_there = (_since(stage.since, one) for one in read_by)
    else:
        here = _since(stage.since, read_by[0])
        found_there = [suffix(here, one, trimmed) for one in read_by[1:]]
    comparisons = [method(here, one) for one in found_there]
    found = next((one for one in comparisons if not one.identical), comparisons[0])
    out.compared.add(found)
    out.problems += found.examples
    out.was_compared = True
    if not found.records:
        out.problems.append("nothing was compared: the source holds no record")
    if stage.scenario.exact:
        out.problems += compare_ends("the end", names, *_both(names, "end", *(side.ends for side in sides)))
    if stage.check_starts:
        out.problems += compare_ends("the start", names, *_both(names, "start", *(side.starts for side in sides)))
    if stage.scenario.acknowledged:
        keeping(stage, names)
    _halted(stage)
    spoilt = {topic for topic, _ in (*stage.halts.permitted, *stage.since, *stage.strangers, *stage.survivors)}
    out.audited += [plan.name for plan in stage.topics if plan.name not in spoilt]


def _both(names: Sequence[Name], what: str, *tell: Callable[[Sequence[Name]], Offsets]) -> list[Offsets]:
    """Asks both sides until they answer, and returns their offsets. Otherwise a missing answer could pass as an equal
    one.

    Args:
        names: the partitions.
        what: what the offsets are, for the message.
        tell: functions that return partition -> offset, or nothing if there is no answer.

    Raises:
        ChaosError: one of them does not answer in time.
    """
    return [until(lambda: one(names), f"the {what}s of {names}") if names else {} for one in tell]  # noqa: B023


def _since(since: Mapping[Name, int], reading: Reading) -> Reading:
    """Returns a reading without the records before some offsets. ``since``: partition -> offset."""
    return {name: {at: one for at, one in held.items() if at >= since.get(name, 0)} for name, held in reading.items()}


def _without(strangers: Mapping[Name, int], here: Reading, there: Reading) -> Reading:
    """Returns a reading of the destination without the strangers' records. These are the records that the source does
    not have, in the strangers' partitions. Their number has to be what the strangers have written; otherwise nothing is
    left out.

    Args:
        strangers: partition -> number of records that strangers have written.
        here: the source's records.
        there: the destination's records.
    """
    out = dict(there)
    for name, count in strangers.items():
        known = set(here.get(name, {}).values())
        ours = {at: one for at, one in there.get(name, {}).items() if one in known}
        if name in there and len(there[name]) - len(ours) == count:
            out[name] = ours
    return out


def _halted(stage: "Stage") -> None:
    """Checks that all expected halts have come, that the last halt of each partition has the right reason, and that the
    copies before the halts are right."""
    out = stage.outcome
    for name, halting in stage.halts.expected.items():
        told = [mirror.halted_before[name] for mirror in stage.mirrors if name in mirror.halted_before]
        said = [halt.reason for halt in sorted(told, key=lambda halt: halt.at)]
        label = f"{name[0]}-{name[1]}"
        if not said:
            out.problems.append(f"{label} did not halt")
        elif said[-1] != halting.reason:
            out.problems.append(f"{label} halted with {said[-1]} instead of {halting.reason}")
        out.halted += said[-1:]
    _prefixes(stage, list(stage.halts.expected))
    if out.halted and not stage.halts.looked_on:
        out.problems.append("nobody measured whether the others went on beside what had halted")


def _prefixes(stage: "Stage", names: Sequence[Name]) -> None:
    """Checks that the copies of halted partitions are what the source had, and no more."""
    out = stage.outcome
    unknown = [name for name in names if stage.halts.expected[name].right is None]
    here = read(stage.source.bootstrap_servers, unknown, "read_committed")
    there = read(stage.destination.bootstrap_servers, names, "read_uncommitted")
    ends = until(lambda: stage.destination.ends(names), "the ends of what has halted") if names else {}
    for name in names:
        halting = stage.halts.expected[name]
        right = here[name] if halting.right is None else halting.right
        if not stage.scenario.exact:
            wrong = judge_order(name, halting, right, there[name])
            first = dict(list(right.items())[: len(there[name])])
            out.prefixes += len(there[name])
            found = compare_order({name: first}, {name: there[name]})
        else:
            wrong = judge(name, halting, right, there[name], ends[name])
            copied = min(ends[name] - halting.strangers, halting.ends[1])
            first, held = ({at: one for at, one in all_of.items() if at < copied} for all_of in (right, there[name]))
            out.prefixes += len(first)
            found = compare({name: first}, {name: held})
            found.misplaced += sum(at >= copied for at in there[name]) if halting.unseen else 0
        out.problems += wrong
        out.compared.count(found)
