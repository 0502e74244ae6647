"""What becomes of a partition, by what its work beside the data path raises."""

import pytest

from mirror.net.errors import ConnectionLost
from mirror.reasons import HaltReason
from mirror.relay.halts import Halted, halt
from mirror.relay.outcome import Doubt, Moved, NotOurs, attempted

GONE = ConnectionLost("broker 1 is gone")
CASES = {
    "halts": (halt(HaltReason.OVERFILLED, "at 3"), Halted.of(HaltReason.OVERFILLED, "at 3")),
    "taken over": (NotOurs("t-0"), Doubt("not_owner", "t-0: another worker has taken it over", taken_over=True)),
    "fenced": (
        NotOurs("t-0", "has fenced it"),
        Doubt("not_owner", "t-0: another worker has fenced it", taken_over=True),
    ),
    "moved": (Moved("end_moved", "ends at 4"), Doubt("end_moved", "ends at 4")),
    "unsettled": (Moved("marker_refused", "52", unsettled=True), Doubt("marker_refused", "52", unsettled=True)),
    "a cluster": (GONE, Doubt(GONE.slug, "broker 1 is gone")),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_stops_it(case: str) -> None:
    error, expected = CASES[case]

    async def work() -> int:
        raise error

    assert await attempted(work()) == expected


async def test_nothing_does() -> None:
    async def work() -> int:
        return 7

    assert await attempted(work()) == 7


async def test_a_bug_is_not_caught() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await attempted(work())
