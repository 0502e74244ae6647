"""Ranges that are not copied: told before they are written down, and once however often that is tried."""

import pytest

from mirror.net.errors import ConnectionLost
from mirror.offsetmap.entries.checkpoint import SkippedOffsets
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.relay.durable.skips import DELETED, NEVER_ARRIVED, ON_GAP, UNPROVEN, Skips
from tests.relay.stage.flows import Log

SIDE = Subject("orders", 3, "orders")
WORDS = {
    ON_GAP: "offsets 5 to 9 of the source are not there to copy; going on was accepted",
    UNPROVEN: "nothing shows that offsets 5 to 9 of the source are at the destination; taking that on trust was "
    "accepted",
    DELETED: "offsets 5 to 9 of the source were due when the partition halted, and the source has deleted them since: "
    "they were never copied",
    NEVER_ARRIVED: "offsets 5 to 9 of the source never arrived; going on was accepted",
}


class Topic:
    """The internal topic: what was saved; it fails so often first."""

    def __init__(self, log: Log, fails: int = 0) -> None:
        self.log = log
        self.fails = fails
        self.saved: list[Entry] = []

    async def save(self, entries: list[Entry], *, forget: tuple[bytes, ...] = ()) -> None:
        assert self.log.of("skipped") or not entries, "written down before it was told"
        self.fails -= 1
        if self.fails >= 0:
            raise ConnectionLost("the destination is gone")
        self.saved += entries


@pytest.mark.parametrize("cause", WORDS)
async def test_told_and_written_down(cause: str) -> None:
    log = Log()
    topic = Topic(log)
    await Skips(topic, log).write(SIDE, [(5, 10, cause)])  # type: ignore[arg-type]
    (line,) = log.of("skipped")
    assert (line["topic"], line["partition"], line["detail"]) == ("orders", 3, WORDS[cause])
    (entry,) = topic.saved
    assert isinstance(entry, SkippedOffsets)
    assert (entry.subject, entry.start, entry.end, entry.cause) == (SIDE, 5, 10, cause)


async def test_once_for_all_tries() -> None:
    log = Log()
    topic = Topic(log, fails=3)
    skips = Skips(topic, log)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(ConnectionLost):
            await skips.write(SIDE, [(5, 10, ON_GAP)])
    await skips.write(SIDE, [(5, 10, ON_GAP)])
    assert len(log.of("skipped")) == 1
    # The same range once more is another decision: the destination may have lost what was filled.
    await skips.write(SIDE, [(5, 10, ON_GAP), (20, 21, ON_GAP)])
    assert len(log.of("skipped")) == 3


async def test_nothing() -> None:
    log = Log()
    topic = Topic(log)
    await Skips(topic, log).write(SIDE, [(5, 5, ON_GAP)])  # type: ignore[arg-type]
    assert not log.of("skipped")
    assert topic.saved == []
