"""Where a producer id ends and the next one begins: what comes late is refused there, or does no harm.

The destination is the simulation's model of a broker; what looks at it is the real ``look_back`` and ``continued``.
"""

from unittest.mock import patch

import pytest

from mirror.net.logs.log import Segment
from mirror.records.identity import MAX_EPOCH, Identity, producer_id
from mirror.records.scan import NOT_SEEN
from mirror.relay.locate import tails
from mirror.relay.locate.rules import ResyncRules, continued
from mirror.relay.locate.tails import look_back
from mirror.wire.errors import ErrorCode
from tests.records.builders import raw_batch
from tests.simulation.model.broker import Answer, PartitionModel

OWNER = producer_id(flow="f", cluster_id="c", topic="t", partition=0)
LAST = Identity(OWNER, MAX_EPOCH, 0)
"""Of the last data before the rotation: 4 offsets."""
RULES = ResyncRules(name="t-0", owner=OWNER, filler=1 << 62, settle_s=0.0)


class There:
    """The model as a log to look at."""

    name = "t-0 at destination"

    def __init__(self) -> None:
        self.model = PartitionModel()
        assert self.send(LAST, 4) == Answer(ErrorCode.NONE, 0)
        assert self.mark(LAST) == ErrorCode.NONE

    def send(self, identity: Identity, count: int) -> Answer:
        return self.model.produce(
            raw_batch(
                b"%d records" % count,
                base_offset=0,
                attributes=0,
                last_offset_delta=count - 1,
                record_count=count,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=identity.sequence,
            )
        )

    def mark(self, before: Identity) -> int:
        """A marker in a hole behind data of this identity."""
        return self.model.write_marker(before.marker.producer_id, before.marker.epoch)

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        model = self.model
        model.replicate()
        found = [(stored.header, memoryview(stored.data)) for stored in model.read(offset, max_bytes)]
        return Segment(found, [], model.end, model.end, 0, NOT_SEEN)

    async def next(self) -> Identity:
        """The identity with which a resync goes on."""
        tail = await look_back(self, 0, self.model.end, owner=OWNER)
        return continued(tail, None, RULES, self.model.end)


def test_late_data_of_the_last_id_is_refused() -> None:
    """A batch of which the source's cleaner has taken the records meanwhile, so that its place is a hole."""
    there = There()
    assert there.send(LAST.after(4), 4).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert there.send(LAST.behind_markers(), 2) == Answer(ErrorCode.NONE, 5)
    assert there.send(LAST.after(4), 4).error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_mutation_the_next_id_begins_with_markers() -> None:
    with patch.object(Identity, "marker", property(lambda self: Identity(self.producer_id + 1, 1, 0))):
        assert There().send(LAST.after(4), 4) == Answer(ErrorCode.NONE, 5), "misplaced"


@pytest.mark.parametrize("rule", [True, False], ids=["", "mutation"])
async def test_a_late_marker_of_the_last_id_behind_data_of_the_next(rule: bool) -> None:
    """It fills an offset of a hole, and says nothing of who goes on: else everybody would for ever continue a sequence
    that the broker does not take."""
    there = There()
    assert there.send(LAST.behind_markers(), 2) == Answer(ErrorCode.NONE, 5)
    assert there.mark(LAST) == ErrorCode.NONE
    with patch.object(tails, "is_before", tails.is_before if rule else lambda header, other: False):
        identity = await there.next()
    error = there.send(identity, 1).error
    assert error == (ErrorCode.NONE if rule else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@pytest.mark.parametrize("rule", [True, False], ids=["", "mutation"])
async def test_a_late_marker_of_the_last_id_behind_markers_of_the_next(rule: bool) -> None:
    """The hole was filled by two workers, the second of which began with the next id."""
    there = There()
    assert there.mark(LAST.behind_markers()) == ErrorCode.NONE
    assert there.mark(LAST) == ErrorCode.NONE
    with patch.object(tails, "is_before", tails.is_before if rule else lambda header, other: False):
        identity = await there.next()
    error = there.send(identity, 1).error
    assert error == (ErrorCode.NONE if rule else ErrorCode.INVALID_PRODUCER_EPOCH)
