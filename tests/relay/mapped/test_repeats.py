"""``offsets: mapped``: the destination takes a batch for a repeat of one that was sent before, and came late."""

import pytest

from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.restamp import checksum
from mirror.relay import settings
from mirror.relay.partition.phases import Phase
from mirror.relay.sink import Lane
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batch, batches, clusters, fill, mirroring

LOST = b"of a log that the source has lost"


def arrive(flow: Flow, *sent: bytes) -> None:
    """These come now, as this worker had sent them behind what it has copied."""
    copied = flow.partition().queue.copied
    assert copied is not None
    identity, sequence = copied.identity, copied.identity.sequence
    for one in sent:
        header = BatchHeader.read(one)._replace(
            base_offset=0,
            leader_epoch=-1,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            crc=0,
        )
        sealed = header._replace(crc=checksum(header.pack() + one[HEADER_SIZE:]))
        assert flow.destination.log("t").produce(sealed.pack() + one[HEADER_SIZE:])[0] == 0
        sequence += header.last_offset_delta + 1
    flow.destination.changed()


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("rule", [True, False])
async def test_what_comes_late_from_a_lost_connection(rule: bool, lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. What a worker had under way when its connection broke comes late, behind where it has looked since. The answer to
       its next batch has a time of append, as answers to repeats have: both logs are compared from there on. If the
       source has lost what came, it halts.
    2. If such an answer is believed, the copy has records that the source has not, and nobody says so.
    """
    monkeypatch.setattr(settings, "FRESH_FOR_SETTLES", 1_000_000)  # nothing else has the log's end looked at
    if not rule:
        monkeypatch.setattr(Lane, "_is_unread_repeat", staticmethod(lambda *_: False))
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination, mapped=True) as flow:
            await flow.copied()
            flow.relay.doubt_now(flow.partition(), "connection_lost", "as if its connection had broken")
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            arrive(flow, batch(6), batch(9, payload=LOST if lost else None))
            source.store("t", 0, *batches(3, first=6))
            if rule and lost:
                assert await flow.halted() == "not_a_copy"
            else:
                await until(lambda: flow.partition().queue.acknowledged == 15)
                here, there = ([each[HEADER_SIZE:] for each in log.batches if each] for log in flow.logs())
                assert (here == [each for each in there if each in here]) == (not lost)
