"""The flow leads back to where its source was copied from (``mirror cutover --reverse``), while everything else goes
wrong: both logs begin with what producers wrote to the destination before, and the pin says up to where.

There, the destination has transactions, aborted ones and the gaps of a cleaner; the source has the copies of another
flow, and markers in the place of everything else. Before the first worker comes, the destination may lose the end of
that. Then the flow copies it again, as its own.
"""

from typing import Any

import pytest

from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import LastCopied, Pin
from mirror.records.header import HEADER_SIZE
from mirror.records.identity import producer_id
from mirror.relay.locate import resync
from mirror.relay.locate.compare import Comparison
from mirror.relay.locate.rules import ResyncRules
from tests.records.builders import raw_batch
from tests.simulation.checks import Copy, Violation
from tests.simulation.model.broker import Stored, marker_batch
from tests.simulation.model.site import TOPIC
from tests.simulation.mutation import Mutation, find
from tests.simulation.run import Outcome, Run
from tests.simulation.run import play as play_run
from tests.simulation.seeds import runs
from tests.simulation.source import SourceLog

SEEDS = runs(60)
FORTH = producer_id(flow="forth", cluster_id="dest-id", topic=TOPIC, partition=0)
"""Who copied it to what is the source now."""
LOST = {"source_truncated", "overfilled", "not_a_copy", "recreated", "unproven"}


class Adopted(Copy):
    """Of a partition whose logs begin with the same."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.before: dict[int, bytes] = {}
        """Base offset -> what was there before the flow."""
        self.hangs = False
        """The destination has lost the marker of a transaction, which is open now, for ever."""

    def excuses(self, reason: str, at_s: float) -> bool:
        """Also what is halted by such a transaction."""
        return (self.hangs and reason == "not_a_copy") or super().excuses(reason, at_s)

    def compare(self) -> None:
        """That is no copy."""
        super().compare()
        if self.hangs:
            raise Violation("a transaction is open in what was adopted, and nobody sees it")

    def take(self, stored: Stored) -> None:
        """What was there before is the destination's own; the source has its records, or markers."""
        header = stored.header
        if self.before.get(header.base_offset) != stored.data:
            super().take(stored)
            return
        self._taken = header.next_offset  # its cleaner has taken what is missing
        if not header.is_control and header.record_count and not self.there.model.is_aborted(header):
            self.seen[header.base_offset] = (header.last_offset_delta + 1, stored.payload)


class Back(Run):
    """A run of a flow that leads back."""

    copy_type: type[Copy] = Adopted

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for copy in self.partitions:
            assert isinstance(copy, Adopted)
            self._write_before(copy)

    def _write_before(self, copy: Adopted) -> None:
        chance, there = self.chance, copy.there
        former = SourceLog(
            self.recipe._replace(batches=chance.choice([1, 3, 12])), chance, name=f"before, {copy.index}: "
        )
        while not former.finished:
            former.grow(there.now_ms)
        for stored in former.model.batches:
            there.model.store(stored.data)
            copy.before[stored.header.base_offset] = stored.data
            self._copy_forth(copy.source, stored, former)
        end = former.model.end
        pin = Pin(
            subject=Subject(TOPIC, copy.index, TOPIC), source_id=_hex(copy.here.partitions[0].topic_id),
            destination_id=_hex(there.partitions[0].topic_id), source_cluster="source-id", offsets="exact",
            copied=LastCopied(end, copy.here.model.epoch), isolation_level="read_committed", identity="stamped",
            adopted=end, adopted_epoch=there.model.epoch,
        )  # fmt: skip
        there.remember([(pin.key(), pin.value())])
        if chance.random() < 0.2:
            ends = [0, *(each.header.next_offset for each in former.model.batches[:-1])]
            there.fail_over(crash=False, lose_from=chance.choice([ends[-1], chance.choice(ends)]))
            copy.hangs = there.model.last_stable < there.model.end
        copy.look_at_new()

    def _copy_forth(self, source: SourceLog, stored: Stored, former: SourceLog) -> None:
        """As another flow has copied it: everything but records became markers."""
        header = stored.header
        copied = not header.is_control and header.record_count > 0 and not former.model.is_aborted(header)
        for offset in range(source.model.end, header.base_offset if copied else header.next_offset):
            source._store(marker_batch(offset, FORTH, 1))
        if copied:
            source._store(
                raw_batch(
                    stored.data[HEADER_SIZE:],
                    base_offset=header.base_offset,
                    leader_epoch=source.model.epoch,
                    last_offset_delta=header.last_offset_delta,
                    base_timestamp=header.base_timestamp,
                    max_timestamp=header.max_timestamp,
                    producer_id=FORTH,
                    producer_epoch=0,
                    base_sequence=header.base_offset,
                    record_count=header.record_count,
                )
            )


def _hex(topic_id: bytes | None) -> str | None:
    return topic_id.hex() if topic_id is not None else None


def play(seed: int) -> Outcome:
    """One run."""
    return play_run(seed, Back)


@pytest.mark.long
def test_the_way_back() -> None:
    """What consumers see is what was there, or the source's; nothing halts without a cause."""
    outcomes = [play(seed) for seed in range(1, SEEDS + 1)]
    assert sum(not each.halted for each in outcomes) >= SEEDS / 2
    assert all(each.strays for each in outcomes if set(each.halted.split()) - LOST)


async def _nothing(*_: object) -> bool:
    return False


@pytest.mark.long
@pytest.mark.parametrize(
    "mutation",
    [
        Mutation("what was there before counts", ((ResyncRules, "is_adopted", lambda *_: False),), 3),
        Mutation("what consumers do not see is not compared", ((Comparison, "_shows_nothing", _nothing),), 10),
        Mutation("no transaction of it may be open", ((resync.Resync, "_check_decided", _nothing),), 40),
    ],
    ids=lambda mutation: mutation.rule,
)
def test_mutation(mutation: Mutation) -> None:
    """Without the rule, a run shows why it is there."""
    find(mutation, play)
