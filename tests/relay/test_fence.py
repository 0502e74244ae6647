"""What the destination's leader remembers outlives a takeover that gets no further than its fence."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from mirror.net.log import Producer
from mirror.net.state import Memory
from mirror.records.identity import Identity
from mirror.records.state import Checkpoint, Entry, Ledger, Order, Side
from mirror.relay.fence import Before, note, noted

SIDE = Side("orders", 0, "all")
CHECKPOINT = Checkpoint(
    side=SIDE,
    writer="w",
    order=Order(1, 1000, 4),
    source_offset=7,
    source_epoch=0,
    destination_offset=20,
    identity=Identity(1000, 4, 3),
)
SEEN = Before(30, [Producer(1000, 4, 8)])
FENCED = Before(40, [Producer(1000, 5, -1)])
"""What a look behind the fence sees: the leader has forgotten epoch 4."""


class Topic:
    """The internal topic."""

    def __init__(self, *entries: Entry) -> None:
        self.ledger = Ledger()
        for entry in entries:
            self.ledger.put(entry)

    async def load(self) -> None:
        """Nobody else writes."""

    async def put(self, entry: Entry) -> None:
        self.ledger.put(entry)


def state(*entries: Entry) -> Memory:
    return cast(Memory, cast(Any, Topic(*entries)))


def test_the_next_takeover_knows_what_the_one_before_has_seen() -> None:
    async def takeovers() -> Before:
        topic = state(CHECKPOINT)
        assert await noted(topic, SIDE, SEEN) == SEEN
        return await noted(topic, SIDE, FENCED)

    found = asyncio.run(takeovers())
    assert found.last_sequence(1000, 4) == 8
    assert found.end == SEEN.end, "what was appended up to the fence is yet to be looked at"


def test_behind_the_fence_nothing_is_left_to_look_at() -> None:
    async def takeovers() -> Before:
        topic = state(CHECKPOINT)
        await noted(topic, SIDE, SEEN)
        await note(topic, SIDE, Before(35, [Producer(1000, 4, 9)], complete=True))
        return await noted(topic, SIDE, FENCED)

    found = asyncio.run(takeovers())
    assert (found.last_sequence(1000, 4), found.end) == (9, FENCED.end)


@pytest.mark.parametrize(
    "checkpoint",
    [
        replace(CHECKPOINT, closed=True),
        replace(CHECKPOINT, identity=Identity(1000, 5, 0), order=Order(2, 1000, 5)),
        replace(CHECKPOINT, identity=Identity(1001, 4, 0), order=Order(2, 1001, 4)),
    ],
    ids=["closed", "later epoch", "another id"],
)
def test_of_other_checkpoints_a_note_says_nothing(checkpoint: Checkpoint) -> None:
    async def takeovers() -> Before:
        topic = state(replace(CHECKPOINT, closed=checkpoint.closed))
        await noted(topic, SIDE, SEEN)
        known = topic.ledger.remembered(SIDE)
        return await noted(state(checkpoint, *([known] if known else [])), SIDE, FENCED)

    assert asyncio.run(takeovers()).last_sequence(1000, 4) is None


def test_a_note_of_an_end_that_the_log_has_lost_says_nothing() -> None:
    async def takeovers() -> Before:
        topic = state(CHECKPOINT)
        await noted(topic, SIDE, SEEN)
        return await noted(topic, SIDE, FENCED._replace(end=SEEN.end - 1))

    assert asyncio.run(takeovers()).last_sequence(1000, 4) is None
