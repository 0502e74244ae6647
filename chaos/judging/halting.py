"""Checks a partition that has to halt: its reason, and its copy at the destination. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from chaos.play.sides import Name

__all__ = ["Halting", "judge", "judge_order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Halting:
    """The halt that is expected.

    Attributes:
        reason: the one that it has to give.
        ends: offsets between which the copy has to end (both included).
        right: the source's records when they could be copied (offset -> digest); None: those that it has in the end.
        strangers: number of offsets after the copy that the act itself wrote at the destination.
        under_way: at most this many of the copy's next offsets may follow those: sent before they were noticed.
        unseen: True if the strangers' offsets are markers: no consumer, of either isolation level, is given anything
            behind the copy.
    """

    reason: str
    ends: tuple[int, int]
    right: Mapping[int, bytes] | None = None
    strangers: int = 0
    under_way: int = 0
    unseen: bool = False


def judge(name: Name, halting: Halting, here: Mapping[int, bytes], there: Mapping[int, bytes], end: int) -> list[str]:
    """Returns what is wrong with a halted partition's copy, in words.

    Args:
        name: the partition.
        halting: the halt that is expected.
        here: the source's records that could be copied.
        there: the destination's records, of every kind.
        end: end offset of the destination's log.
    """
    label = f"{name[0]}-{name[1]}"
    least, most = halting.ends
    late = min(halting.under_way, max(0, end - halting.strangers - most))
    copied = end - halting.strangers - late
    if not least <= copied <= most:
        return [f"{label} halted, and its copy ends at {copied} instead of {least} to {most}"]
    right = {offset: one for offset, one in here.items() if offset < copied}
    held = {offset: one for offset, one in there.items() if offset < copied}
    differ = sorted({*right.items()} ^ {*held.items()})
    found = []
    if differ:
        places = ", ".join(map(str, sorted({offset for offset, _ in differ})[:5]))
        found.append(f"{label} halted, and is not the source's up to {copied}: it differs at {places}")
    behind = {offset - end + copied + late: one for offset, one in there.items() if offset >= end - late}
    if any(here.get(offset) != one for offset, one in behind.items()):
        found.append(f"{label} halted, and what stands behind the strangers' records is not the source's next")
    if halting.unseen and (shown := sorted(offset for offset in there if offset >= copied)):
        found.append(f"{label} halted at {copied}, and consumers are given records behind that: at {shown[:5]}")
    if least and not right:
        found.append(f"{label} halted, and nothing of the source was known to compare it with")
    return found


def judge_order(name: Name, halting: Halting, here: Mapping[int, bytes], there: Mapping[int, bytes]) -> list[str]:
    """Like ``judge`` for a copy at offsets of its own: the source's first records, each once, in their order.

    ``halting.ends`` are numbers of records here.
    """
    label = f"{name[0]}-{name[1]}"
    right, held = list(here.values()), list(there.values())
    least, most = halting.ends
    if not least <= len(held) <= most:
        return [f"{label} halted, and its copy has {len(held)} records instead of {least} to {most}"]
    if held != right[: len(held)]:
        at = next((at for at, (a, b) in enumerate(zip(held, right, strict=False)) if a != b), len(right))
        return [f"{label} halted, and its copy differs from the source at record {at}"]
    return []
