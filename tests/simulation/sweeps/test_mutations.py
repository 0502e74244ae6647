"""The simulation can fail: with any rule of the protocol taken away, it finds what the rule is there for.

Each mutation replaces one function of the product by what it would be without the rule; some seed within the given
number must then end in a violation.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from mirror.net.errors import NetworkError, Unreachable
from mirror.offsetmap.entries.keys import Subject
from mirror.records.identity import Identity
from mirror.relay.durable import notes
from mirror.relay.durable.pins import Pins
from mirror.relay.holes import markers
from mirror.relay.hot.freshness import Freshness
from mirror.relay.hot.plain import NEVER_MS
from mirror.relay.locate import resync, tails
from mirror.relay.locate.compare import Comparison, Proof
from mirror.relay.locate.owners import Owners
from mirror.relay.locate.position import Locator
from mirror.relay.locate.resync import Resync
from mirror.relay.locate.rules import ResyncRules
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Queue
from mirror.relay.sink import Lane
from tests.simulation.mutation import Mutation, find
from tests.simulation.run import play
from tests.simulation.source import Recipe

pytestmark = pytest.mark.long


async def _true_end(there: Any, log: Any) -> int:
    """The log end, replicated or not."""
    end: int = await there.true_end()
    return end


async def _visible_end(there: Any, log: Any) -> int:
    """What consumers see, whatever stands above it."""
    try:
        end: int = await there.visible_end()
    except NetworkError:
        end = await there.true_end()
    return end


_batches = tails.batches


async def _to_where_it_can(log: Any, start: int, end: int) -> AsyncIterator[Any]:
    """What cannot be read (any more) is left out."""
    with suppress(Unreachable):
        async for each in _batches(log, start, end):
            yield each


_rules = Locator.rules


def _without_settle(self: Locator, partition: Partition) -> ResyncRules:
    return replace(_rules(self, partition), settle_s=0.0)


_by_markers = markers.ByMarkers.__init__


def _same_coordinator(self: markers.ByMarkers, there: Any, before: Identity, coordinator_epoch: int) -> None:
    _by_markers(self, there, before, 0)


_start = Partition.start


def _with_full_window(self: Partition, location: Any, *, topic_head: bytes) -> None:
    _start(self, location, topic_head=topic_head)
    self.queue.checking = False
    self.queue.proven, self.queue.old, self.queue.window = True, False, 5
    self.queue.freshness.appended(self.queue.acknowledged, NEVER_MS)


def _believing(self: Any, queue: Queue, answer: Any, response: Any) -> None:
    """An error code is taken for an acknowledgement."""
    if queue.partition.phase is not Phase.ACTIVE or not queue.in_flight:
        self._let_go(queue)
        return
    queue.acknowledged += queue.in_flight[0][2]
    queue.pop_unbelieved()


async def _without_looking(self: Any) -> None:
    """Markers are written, and their answers believed."""
    await self._look(self._offset)
    await self._write(self._until - self._offset)


async def _owner(self: Owners, partition: Partition) -> bool:
    return True


_stand_still: Callable[..., Awaitable[Any]] = Resync._stand_still


async def _asked_later(self: Any, *arguments: Any) -> Any:
    _, end = await _stand_still(self, *arguments)
    return await self._there.producers(), end


_appended, _pass = Freshness.appended, Freshness._pass


def _always_fresh(self: Freshness, acknowledged: int, _: int) -> None:
    """What was acknowledged last counts as fresh for ever."""
    _appended(self, acknowledged, NEVER_MS)


def _passed_as_fresh(self: Freshness, acknowledged: int) -> None:
    last_ms = self._last_ms
    _pass(self, acknowledged)
    self._last_ms = max(last_ms, self._last_ms)


def _by_the_last(self: Freshness, acknowledged: int, next_offset: int, _: int, last_ms: int) -> None:
    """Of a record set only the last batch is looked at."""
    self._pass(acknowledged)
    self._sets.append((next_offset, last_ms, last_ms))
    self.bound_ms = min(self.bound_ms, last_ms)


def _another_id(self: Freshness, acknowledged: int) -> None:
    """A producer id that has written nothing is as good as any."""


def _mostly(**changes: Any) -> tuple[Any, str, Any]:
    """Sources of this kind only, so that fewer seeds are needed."""

    def mixed(self: Recipe, _: Any) -> Recipe:
        return self._replace(**changes)

    return Recipe, "mixed", mixed


async def _forgotten(self: Pins, partition: Partition) -> None:
    """Nothing of what was written down is recalled."""


async def _unwritten(self: Pins, partition: Partition, halted: Any, may_tell: Any) -> None:
    """Only this process knows that the partition has halted."""


async def _vouches(*_: Any) -> int:
    """What cannot be compared is taken for a copy."""
    return -1


def _sure(*_: Any) -> bool:
    """What waits is sent without another look at the log's end."""
    return False


async def _a_copy(*_: Any) -> Proof:
    """Whatever the destination ends with is taken for the source's."""
    return Proof(proven=True)


async def _is_original(*_: Any) -> bool:
    """Behind the source's end, only the markers are looked at."""
    return True


_last_agreed = Comparison._last_agreed


LAST_ALONE = (Resync, "_prove_window", _vouches)
"""Of a window, only the last batch is compared. Otherwise that shows much of what another rule has to prevent."""


async def _parts_right_behind(self: Comparison, low: int, source_end: int, high: int) -> Any:
    """What was filled behind the last copy that both agree on is taken for a part of what was lost."""
    agreed, after = await _last_agreed(self, low, source_end, high)
    if agreed is not None and agreed.next_offset < source_end:
        found = await self._here.batch_at(agreed.next_offset)
        after = found[0] if found is not None else None
    return agreed, after


_first = property(lambda self: Subject(self.topic, 0, self.destination))
_generation = property(lambda self: self.cursor.generation, lambda self, _: None)


MUTATIONS = (
    # Looking back meets unreplicated offsets at the end, too, and says that it cannot read them.
    Mutation(
        "barrier: unreplicated offsets",
        (
            (resync, "barrier", _true_end),
            (markers, "barrier", _true_end),
            (tails, "batches", _to_where_it_can),
        ),
        300,
    ),
    Mutation(
        "barrier: hidden offsets",
        ((resync, "barrier", _visible_end), (markers, "barrier", _visible_end)),
        300,
        known=(51,),
    ),
    # Either of the two makes up for the other nearly always.
    Mutation(
        "settle, and coordinator epochs",
        ((Locator, "rules", _without_settle), (markers.ByMarkers, "__init__", _same_coordinator)),
        900,
    ),
    Mutation("window 1 after a resync", ((Partition, "start", _with_full_window),), 300, known=(81,)),
    Mutation("an error is doubt", ((Lane, "_refused", _believing),), 300, known=(23,)),
    Mutation("markers: look at the end", ((markers.MarkerRun, "run", _without_looking),), 900),
    Mutation("markers: ask for the owner", ((Owners, "owns", _owner),), 900),
    Mutation(
        "markers: an epoch of their own",
        (
            (Identity, "marker", property(lambda self: self)),
            (Identity, "behind_markers", lambda self: self),
        ),
        300,
    ),
    Mutation(
        "producers before the end",
        ((Resync, "_stand_still", _asked_later), _mostly(batches=8, transactional=0.0, gaps=0.0, old=0.0)),
        1500,
    ),
    Mutation(
        "window 1 after an idle time",
        (
            (Freshness, "appended", _always_fresh),
            (Freshness, "_pass", _passed_as_fresh),
            _mostly(batches=60, transactional=0.0, gaps=0.0, idle=0.9, old=0.0),
        ),
        300,
    ),
    Mutation(
        "window 1 while an old batch waits among fresh ones",
        ((Freshness, "put", _by_the_last), _mostly(batches=32, transactional=0.0, gaps=0.0, old=0.3)),
        300,
    ),
    Mutation(
        "a producer id begins with one batch",
        (
            (Freshness, "another_id", _another_id),
            LAST_ALONE,
            (Queue, "must_confirm", _sure),
            _mostly(batches=32, max_epoch=0),
        ),
        100,
        first=551,
    ),
    Mutation("a proof is of a position, not of a fetch", ((Partition, "positions", _generation),), 1000),
    Mutation(
        "which topic was copied outlives every process",
        ((Pins, "recall", _forgotten), (notes, "vouch", _vouches), _mostly(recreated=0.3, emptied=0.1, by_id=True)),
        100,
    ),
    Mutation("a halt is written down", ((Pins, "halted", _unwritten),), 60),
    Mutation(
        "what is written down is of one partition",
        ((Partition, "subject", _first), _mostly(partitions=3, emptied=0.3)),
        300,
    ),
    Mutation(
        "what was copied last is the source's", ((Comparison, "prove", _a_copy), _mostly(truncated=0.1, gaps=0.0)), 30
    ),
    Mutation(
        "what was copied before the markers is the source's",
        (
            (Comparison, "_is_original", _is_original),
            LAST_ALONE,
            _mostly(truncated=0.3, gaps=0.0, batches=16, transactional=0.7, aborted=1.0),
        ),
        300,
    ),
    Mutation(
        "where both logs part is where the next copy stands",
        ((Comparison, "_last_agreed", _parts_right_behind), _mostly(truncated=0.3, gaps=0.0)),
        100,
    ),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_without_the_rule_something_is_found(mutation: Mutation) -> None:
    find(mutation, play)
