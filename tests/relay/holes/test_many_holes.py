"""A flow that consists mostly of holes is told that there is a cheaper way."""

from unittest.mock import Mock

from mirror.records.admit import Cause
from mirror.relay.holes.filling import WORTH_A_LOOK, HoleFilling
from mirror.relay.stats import Stats
from tests.relay.stage.flows import Log


def test_it_is_told_once_and_looked_for_seldom() -> None:
    """
    1. Nobody looks before so many offsets were filled. Of all offsets they are a third: nothing is told.
    2. They are most of them by now; the next look is when twice as many were filled, and tells.
    3. It is not told again.
    """
    log, data = Log(), Mock(counts=Mock(records=0))
    filling = HoleFilling(Mock(stats=Stats(), log=log, partitions={("t", 0): data}))

    def fill(count: int) -> int:
        """Returns how often it was told so far."""
        hole = Mock(records=count, cause=Cause.MARKER)
        filling._filled(Mock(trace=None, queue=Mock(pop_hole=lambda: hole, acknowledged=0)))
        return len(log.of("many_holes"))

    assert fill(WORTH_A_LOOK - 1) == 0
    data.counts.records = 2 * WORTH_A_LOOK
    assert fill(1) == 0
    data.counts.records = WORTH_A_LOOK // 2
    assert fill(WORTH_A_LOOK - 1) == 0
    assert fill(1) == 1
    assert log.of("many_holes")[0]["detail"].startswith("20000 of 25000 offsets have no record at the source")
    assert fill(10 * WORTH_A_LOOK) == 1
