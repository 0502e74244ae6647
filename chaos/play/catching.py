"""Waits until the destination of a stage has everything that the source has committed by now."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from chaos.judging.reading import Reading, read
from chaos.play.sides import Name, Offsets
from chaos.waiting import NOW_AND_THEN_S, until

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["caught_up", "reach"]


def caught_up(stage: "Stage", names: Sequence[Name]) -> None:
    """Waits until the destination has everything that the source has committed by now, of these partitions.

    Raises:
        ChaosError: the mirror does not catch up, or ``Stage.look`` has found a problem.
    """
    if not stage.scenario.exact:
        _copied_by_count(stage, names)
        return
    reach(stage, until(lambda: _ends_of_source(stage, names), lambda: f"the source's ends; {stage.told()}"))


def reach(stage: "Stage", wanted: Offsets, but: Callable[[Name], bool] = lambda _: False) -> None:
    """Waits until the destination has reached some ends. For exact offsets only.

    Args:
        stage: the stage.
        wanted: partition -> end offset to reach.
        but: returns True for a partition that need not reach its end.

    Raises:
        ChaosError: the destination does not get there, or ``Stage.look`` has found a problem.
    """
    ends: dict[Name, int] = {}

    def there() -> bool:
        stage.look()
        ends.update(stage.destination.ends(wanted))
        return bool(ends) and all(ends[name] >= end or but(name) for name, end in wanted.items())

    # Partitions that have caught up go on as well. Only those that are still behind count as moving.
    until(
        there,
        lambda: f"the destination to reach {_behind(stage, wanted)}; {stage.told()}",
        moving=lambda: [ends.get(name) for name, end in wanted.items() if ends.get(name, -1) < end],
        every_s=NOW_AND_THEN_S,
    )


def _ends_of_source(stage: "Stage", names: Sequence[Name]) -> dict[Name, int]:
    stage.look()
    return stage.source.ends(names, committed=True)


def _behind(stage: "Stage", wanted: Mapping[Name, int]) -> str:
    ends = stage.destination.ends(list(wanted))
    return ", ".join(
        f"{topic}-{index} {end} (is {ends.get((topic, index))})"
        for (topic, index), end in wanted.items()
        if ends.get((topic, index), -1) < end
    )


def _copied_by_count(stage: "Stage", names: Sequence[Name]) -> None:
    """Waits like ``caught_up`` if offsets differ: until the destination has as many records, without those of
    strangers."""
    here = read(stage.source.bootstrap_servers, names, "read_committed")

    def there() -> bool:
        stage.look()
        # Not read_committed: an open transaction of a stranger would hide the records behind it.
        found = read(stage.destination.bootstrap_servers, names, "read_uncommitted")
        return all(_holds_as_many(stage, name, here[name], found[name]) for name in names)

    until(there, lambda: f"as many records at the destination as {_counts(here)}; {stage.told()}")


def _holds_as_many(stage: "Stage", name: Name, here: dict[int, bytes], found: dict[int, bytes]) -> bool:
    """Returns True if the destination has as many records of a partition as the source. If records may be deleted,
    numbers tell nothing; then the last record has to be there."""
    if name in stage.trimmed or name in stage.survivors:
        return not here or next(reversed(here.values())) in found.values()
    return len(found) - stage.strangers[name] >= len(here)


def _counts(reading: Reading) -> str:
    return ", ".join(f"{topic}-{index}: {len(records)}" for (topic, index), records in reading.items())
