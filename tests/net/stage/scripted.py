"""Two logs of whole batches that only answer, side by side."""

from collections.abc import Sequence
from typing import Any, cast

from mirror.net.logs.log import PartitionLog, Segment
from mirror.offsetmap.compare.lockstep import LockStep
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity

OWN = 7
FIRST = Identity(OWN, 0, 0)


class Scripted:
    """A log of whole batches, as it is read."""

    def __init__(self, name: str, batches: Sequence[bytes]) -> None:
        self.name = name
        self.batches = [(BatchHeader.read(batch), memoryview(batch)) for batch in batches]

    @property
    def end(self) -> int:
        return self.batches[-1][0].next_offset if self.batches else 0

    async def read(self, offset: int, **_: Any) -> Segment:
        """One batch at a time."""
        found = [batch for batch in self.batches if batch[0].last_offset >= offset][:1]
        return Segment(found, [], self.end, self.end, 0)


async def stepped(here: Sequence[bytes], there: Sequence[bytes], *, end: int | None = None, **changes: Any) -> LockStep:
    """All of it, settled."""
    one, other = Scripted("source", here), Scripted("destination", there)
    fields: dict[str, Any] = {
        "source_offset": 0,
        "destination_offset": 0,
        "identity": FIRST,
        "own": {OWN},
        "committed": True,
    } | changes
    step = LockStep(cast(PartitionLog, one), cast(PartitionLog, other), **fields)
    await step.advance(other.end if end is None else end)
    step.decide()
    return step
