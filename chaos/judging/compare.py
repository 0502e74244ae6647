"""Compares both sides record by record, and counts lost, doubled and misplaced records. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chaos.judging.reading import Reading
from chaos.play.sides import Name, Offsets

__all__ = ["Comparison", "compare", "compare_ends", "compare_order"]

_SHOWN = 5


@dataclass(slots=True)
class Comparison:
    """The result of a comparison, or the sum of several.

    Attributes:
        records: number of the source's records that were compared.
        lost: number of the source's records that the destination's partition does not have.
        doubled: number of records that the destination has more often than the source.
        misplaced: number of records that are at another offset than at the source, or not in the source's partition at
            all.
        examples: some of the places, in words.
    """

    records: int = 0
    lost: int = 0
    doubled: int = 0
    misplaced: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """True if no record is lost, doubled or misplaced."""
        return not (self.lost or self.doubled or self.misplaced)

    def add(self, other: "Comparison") -> None:
        """Adds another result."""
        self.records += other.records
        self.lost += other.lost
        self.doubled += other.doubled
        self.misplaced += other.misplaced
        self.examples = (self.examples + other.examples)[: 4 * _SHOWN]

    def count(self, other: "Comparison") -> None:
        """Adds only the numbers of lost, doubled and misplaced records of another result. Its records are counted
        elsewhere, and its places are reported in other words."""
        self.lost += other.lost
        self.doubled += other.doubled
        self.misplaced += other.misplaced

    def _note(self, kind: str, places: list[str]) -> None:
        if places:
            more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            self.examples.append(f"{kind}: {', '.join(places[:_SHOWN])}{more}")


def compare(source: Reading, destination: Reading) -> Comparison:
    """Compares at equal offsets: record N of the source has to be record N of the destination, which must not have any
    other records."""
    out = Comparison()
    for name, here in source.items():
        _compare_one(out, name, here, destination.get(name, {}))
    return out


def _compare_one(out: Comparison, name: Name, here: Mapping[int, bytes], there: Mapping[int, bytes]) -> None:
    label = f"{name[0]}-{name[1]}"
    out.records += len(here)
    if here == there:
        return
    held, known = Counter(there.values()), Counter(here.values())
    lost = [offset for offset, one in here.items() if there.get(offset) != one and not held[one]]
    moved = [offset for offset, one in here.items() if there.get(offset) != one and held[one]]
    foreign = [offset for offset, one in there.items() if one not in known]
    doubled = {one: held[one] - known[one] for one in held if 0 < known[one] < held[one]}
    out.lost += len(lost)
    out.misplaced += len(moved) + len(foreign)
    out.doubled += sum(doubled.values())
    out._note("lost", [f"{label}@{offset}" for offset in lost])
    out._note("misplaced", [f"{label}@{offset}" for offset in moved])
    out._note("not of the source", [f"{label}@{offset}" for offset in foreign])
    out._note("doubled", [f"{label}@{offset}" for offset, one in there.items() if one in doubled])


def compare_order(source: Reading, destination: Reading) -> Comparison:
    """Compares without offsets: the destination has to have the same records in the same order."""
    out = Comparison()
    for name, here in source.items():
        there = list(destination.get(name, {}).values())
        # Only records that both sides have are compared for their order. A record that is lost or doubled moves all
        # records behind it, and these must not count as misplaced.
        expected = list(here.values())
        out.records += len(expected)
        if there == expected:
            continue
        held, known = Counter(there), Counter(expected)
        lost = known - held
        doubled = Counter({one: count - known[one] for one, count in held.items() if 0 < known[one] < count})
        foreign = sum(count for one, count in held.items() if one not in known)
        common = [one for one in dict.fromkeys(there) if one in known]
        ordered = [one for one in dict.fromkeys(expected) if one in held]
        out.lost += lost.total()
        out.doubled += doubled.total()
        out.misplaced += foreign + sum(a != b for a, b in zip(common, ordered, strict=True))
        out._note(
            "differs", [f"{name[0]}-{name[1]}: {lost.total()} lost, {doubled.total()} doubled, {foreign} foreign"]
        )
    return out


def compare_ends(what: str, names: Iterable[Name], source: Offsets, destination: Offsets) -> list[str]:
    """Returns, in words, the partitions whose log ends (or log starts) differ or are not known.

    Args:
        what: what the offsets are, for the text, for example "the end".
        names: the partitions.
        source: partition -> offset at the source.
        destination: partition -> offset at the destination.
    """
    return [
        f"{what} of {topic}-{index} is {source.get((topic, index))} at the source and "
        f"{destination.get((topic, index))} at the destination"
        for topic, index in names
        if (topic, index) not in source or destination.get((topic, index)) != source[topic, index]
    ]
