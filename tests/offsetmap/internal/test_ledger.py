"""What many writers' records say together."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.offsetmap.entries.checkpoint import SkippedOffsets
from mirror.offsetmap.entries.chunks import CHUNK_RUNS, Order
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import (
    Pin,
)
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.runs import Run
from tests.offsetmap.entries.test_entry import HALT, PIN, SIDE, SKIPPED, UPSTREAM, checkpoint, chunk


def test_the_later_takeover_counts_whatever_a_predecessor_writes_afterwards() -> None:
    late = checkpoint("a", 1, 50)
    ledger = Ledger()
    for entry in (checkpoint("a", 1, 10), checkpoint("b", 2, 40), late):
        ledger.put(entry)
    assert ledger.checkpoint(SIDE) == checkpoint("b", 2, 40)
    assert ledger.checkpoints(SIDE) == [late, checkpoint("b", 2, 40)]
    assert ledger.subjects == [SIDE]
    ledger.forget(late.key())
    assert ledger.checkpoints(SIDE) == [checkpoint("b", 2, 40)]


def test_of_one_takeover_the_confirmed_account_counts_whatever_the_producer_ids() -> None:
    """
    1. "b" takes over from "a" and does not see its account, which is written late. Coordinators move between brokers,
       each with a block of ids: "b" has a lower one.
    2. "b" is confirmed, and copies; "a" is not, and sends nothing. What "a" has written does not count, maps neither.
    3. As long as neither is confirmed, nobody has sent anything.
    """
    late = checkpoint("a", order=Order(2, 2000, 0), closed=True, confirmed=False)
    first = checkpoint("b", source=7, order=Order(2, 1000, 0), closed=True, confirmed=False)
    ledger = Ledger()
    for entry in (first, chunk("b", 2, 7, Run(7, 107, 9)), late, replace(chunk("a", 2, 7), order=late.order)):
        ledger.put(entry)
    assert ledger.checkpoint(SIDE) == late
    copied = replace(first, source_offset=16, closed=False, confirmed=True)
    ledger.put(copied)
    assert ledger.checkpoint(SIDE) == copied
    assert list(ledger.map(SIDE)) == [Run(7, 107, 9)]
    assert [one.writer for one in ledger.void(SIDE)] == ["a"]


def test_an_account_that_another_is_built_on_counts() -> None:
    """Two takeovers one after the other get no further than their first checkpoint. The second goes on with the map of
    the first, whose full chunks it does not repeat."""
    ledger = Ledger()
    for entry in (
        checkpoint("a", order=Order(1, 1000, 0)),
        checkpoint("b", order=Order(2, 1000, 1), closed=True, confirmed=False),
        replace(chunk("b", 2, 0, Run(0, 100, 7)), sealed=True),
        checkpoint("c", source=16, order=Order(3, 1000, 2), closed=True, confirmed=False),
        chunk("c", 3, 7, Run(7, 107, 9)),
    ):
        ledger.put(entry)
    assert list(ledger.map(SIDE)) == [Run(0, 100, 16)]
    assert not ledger.void(SIDE)


def test_what_was_known_of_a_side_stays_as_it_was() -> None:
    ledger = Ledger()
    ledger.put(checkpoint("a"))
    known = ledger.of(SIDE)
    ledger.put(checkpoint("b", takeover=2))
    ledger.put(chunk("b", 2, 0, Run(0, 5, 3)))
    assert known.checkpoint(SIDE) == checkpoint("a")
    assert not known.chunks(SIDE)
    assert known.own(SIDE) == {1000}
    assert ledger.of(Subject("other", 0, "t")).checkpoint(SIDE) is None


def test_skipped_ranges_by_topic() -> None:
    other = SkippedOffsets(subject=Subject("a", 0, "a"), start=1, end=2, cause="retention_overtook", at_ms=5)
    ledger = Ledger()
    ledger.put(SKIPPED)
    ledger.put(other)
    assert list(ledger.skipped()) == [other, SKIPPED]
    assert list(ledger.skipped("orders")) == [SKIPPED]


@given(st.randoms(use_true_random=False))
def test_maps_of_several_writers_are_one_in_any_order_of_their_records(chance: random.Random) -> None:
    """A wrote 0 to 30; B took over at 20 and has what A wrote there too, and more; A, not knowing, writes on."""
    entries = [
        chunk("a", 1, 0, Run(0, 100, 10), number=0, sealed=True),
        chunk("a", 1, 0, Run(10, 120, 20), number=1),
        chunk("b", 2, 20, Run(20, 130, 10), Run(30, 150, 5), number=0),
        chunk("b", 2, 20, Run(40, 160, 5), number=1),
    ]
    chance.shuffle(entries)
    ledger = Ledger()
    for entry in entries:
        ledger.apply(entry.key(), entry.value())
    assert list(ledger.map(SIDE)) == [Run(0, 100, 10), Run(10, 120, 20), Run(30, 150, 5), Run(40, 160, 5)]


def test_what_the_destination_lost_is_superseded() -> None:
    """The destination lost everything from 115 on; it was copied again, behind what others had written since."""
    ledger = Ledger()
    ledger.put(chunk("a", 1, 0, Run(0, 100, 30)))
    ledger.put(chunk("b", 2, 15, Run(15, 140, 20)))
    assert list(ledger.map(SIDE)) == [Run(0, 100, 15), Run(15, 140, 20)]


def test_a_lean_ledger_keeps_the_first_run_of_sealed_chunks() -> None:
    runs = [Run(at * 2, at * 2, 1) for at in range(CHUNK_RUNS)]
    ledger = Ledger(lean=True)
    ledger.put(chunk("a", 1, 0, *runs, sealed=True))
    ledger.put(chunk("a", 1, 0, *runs[:3], number=1))
    assert [list(one.map) for one in ledger.chunks(SIDE)] == [runs[:1], runs[:3]]
    assert len(chunk("a", 1, 0, *runs, sealed=True).value()) < 32 * 1024


def test_only_what_is_asked_for() -> None:
    """And what is taken away later was perhaps never kept."""
    ledger = Ledger(only=lambda entry: isinstance(entry, Pin))
    for entry in (PIN, HALT, UPSTREAM, checkpoint()):
        ledger.apply(entry.key(), entry.value())
    assert ledger.known == {SIDE}
    assert (ledger.halt(SIDE), ledger.upstream(SIDE), ledger.checkpoint(SIDE)) == (None, None, None)
    for entry in (PIN, HALT, UPSTREAM, checkpoint()):
        ledger.apply(entry.key(), None)
    assert ledger.known == set()


AB, CD = "ab" * 16, "cd" * 16


@pytest.mark.parametrize(
    ("entries", "ids", "copy"),
    [
        pytest.param([], (AB, CD), False, id="nothing is known of it"),
        pytest.param([PIN], (AB, CD), True, id="begun"),
        pytest.param([PIN], (None, None), True, id="begun, and the clusters have no ids"),
        pytest.param([PIN], (CD, AB), False, id="of another source topic"),
        pytest.param([replace(PIN, destination_id=CD)], (AB, AB), False, id="into another topic"),
        pytest.param([PIN, HALT], (AB, CD), False, id="halted, because another may stand there"),
        pytest.param([PIN, replace(HALT, reason="too_large")], (AB, CD), True, id="halted for another reason"),
        pytest.param([checkpoint()], (AB, CD), True, id="begun, mapped"),
        pytest.param([checkpoint()], (CD, CD), False, id="of another source topic, mapped"),
        pytest.param(
            [replace(PIN, subject=SIDE._replace(partition=0)), replace(HALT, subject=SIDE._replace(partition=1))],
            (AB, CD),
            False,
            id="another partition has halted",
        ),
    ],
)
def test_what_is_a_copy(entries: list[Entry], ids: tuple[str | None, str | None], copy: bool) -> None:
    ledger = Ledger()
    for entry in entries:
        ledger.put(entry)
    assert ledger.is_copy("orders", "all-orders", range(4), *ids) is copy
    assert not ledger.is_copy("orders", "others", range(4), *ids)
