"""Waiting until a stage's destination has what its source has committed by now."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chaos.reading import Reading, read
from chaos.sides import Name
from chaos.waiting import NOW_AND_THEN_S, until

if TYPE_CHECKING:
    from chaos.stage import Stage

__all__ = ["caught_up"]


def caught_up(stage: "Stage", names: Sequence[Name]) -> None:
    """See ``Stage.caught_up``; of these partitions.

    Raises:
        ChaosError: it does not come to that, or something is not as it should be.
    """
    if not stage.scenario.exact:
        _copied_by_count(stage, names)
        return
    wanted = until(lambda: _ends_of_source(stage, names), lambda: f"the source's ends; {stage.told()}")
    ends: dict[Name, int] = {}

    def there() -> bool:
        stage.look()
        ends.update(stage.destination.ends(names))
        return bool(ends) and all(ends[name] >= end for name, end in wanted.items())

    # A partition that has what is wanted goes on, too: what counts is that one of the others does.
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
    """The same where offsets differ: as many records, those of strangers not counted."""
    here = read(stage.source.bootstrap_servers, names, "read_committed")

    def there() -> bool:
        stage.look()
        # An open transaction of somebody else hides what is behind it from readers of committed records.
        found = read(stage.destination.bootstrap_servers, names, "read_uncommitted")
        return all(_holds_as_many(stage, name, here[name], found[name]) for name in names)

    until(there, lambda: f"as many records at the destination as {_counts(here)}; {stage.told()}")


def _holds_as_many(stage: "Stage", name: Name, here: dict[int, bytes], found: dict[int, bytes]) -> bool:
    """Where records are taken away on the way, numbers say nothing: the last one that the source has is there."""
    if name in stage.trimmed or name in stage.survivors:
        return not here or next(reversed(here.values())) in found.values()
    return len(found) - stage.strangers[name] >= len(here)


def _counts(reading: Reading) -> str:
    return ", ".join(f"{topic}-{index}: {len(records)}" for (topic, index), records in reading.items())
