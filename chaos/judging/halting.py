"""Checks the copy of a partition that had to halt. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from chaos.play.sides import Name

__all__ = ["Halting", "judge", "judge_order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Halting:
    """The halt that is expected.

    Attributes:
        reason: the reason that the halt has to have.
        ends: lowest and highest offset at which the copy may end (both included).
        right: offset -> digest of the source's records while they could be copied; None: those that the source has in
            the end.
        strangers: number of offsets behind the copy that the act itself wrote at the destination.
        under_way: maximum number of the copy's next offsets that may stand behind the strangers': they were sent before
            these were noticed.
        unseen: True if the strangers' offsets are markers, so that a consumer of either isolation level gets nothing
            behind the copy.
    """

    reason: str
    ends: tuple[int, int]
    right: Mapping[int, bytes] | None = None
    strangers: int = 0
    under_way: int = 0
    unseen: bool = False


def judge(name: Name, halting: Halting, here: Mapping[int, bytes], there: Mapping[int, bytes], end: int) -> list[str]:
    """Returns what is wrong with the copy of a halted partition, in words.

    Args:
        name: the partition.
        halting: the expected halt.
        here: offset -> digest of the source's records that could be copied.
        there: offset -> digest of all records of the destination.
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
    """Does what ``judge`` does for a copy with other offsets: it has to have the first records of the source, each once
    and in their order.

    ``halting.ends`` are numbers of records here, not offsets.
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
