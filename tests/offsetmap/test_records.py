"""What is written down, and what many writers' records say together."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.offsetmap.pins import Edge, Hop, LastCopied, Suspended, Upstream
from mirror.offsetmap.records import (
    CHUNK_RUNS,
    AcceptedLoop,
    Checkpoint,
    Chunk,
    Entry,
    Flow,
    KeptHalt,
    Ledger,
    Order,
    Pin,
    Remembered,
    Side,
    Skipped,
    StateError,
    read_entry,
)
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.records.identity import Identity

SIDE = Side("orders", 3, "all-orders")


def checkpoint(writer: str = "a", takeover: int = 1, source: int = 7, **changes: object) -> Checkpoint:
    fields = {
        "side": SIDE,
        "writer": writer,
        "order": Order(takeover, 1000, 4),
        "source_offset": source,
        "source_epoch": 2,
        "destination_offset": source + 100,
        "identity": Identity(1000, 4, 17),
        "source_id": "ab" * 16,
        "at_ms": 1_700_000_000_000,
    }
    return Checkpoint(**(fields | changes))  # type: ignore[arg-type]


def chunk(writer: str, takeover: int, since: int, *runs: Run, number: int = 0, sealed: bool = False) -> Chunk:
    order = Order(takeover, 1000, 4)
    return Chunk(side=SIDE, writer=writer, order=order, number=number, since=since, map=OffsetMap(runs), sealed=sealed)


SKIPPED = Skipped(side=SIDE, start=10, end=20, cause="unexplained_gap", at_ms=5)


FLOW = Flow(flow="dc1->dc2", source_cluster="c1", destination_cluster="c2", at_ms=3)
PIN = Pin(
    side=SIDE,
    source_id="ab" * 16,
    destination_id=None,
    source_cluster="c1",
    copied=LastCopied(70, 4, "0123456789abcdef", 69),
    accepted=12,
    at_ms=4,
)
HALT = KeptHalt(side=SIDE, reason="recreated", detail="d", remedy="r", at_ms=5, source_id="ab" * 16)
LOOP = AcceptedLoop(side=SIDE, by="mirror-internal.back", digest="0123456789abcdef")
UPSTREAM = Upstream(
    side=SIDE,
    hops=(
        Hop(Edge("a->b", "c1", "orders", "c2", "all-orders"), "0123456789abcdef", 8),
        Hop(Edge("é", "c0", "o", "c1", "orders"), "", 9),
    ),
    at_ms=7,
)
SUSPENDED = Suspended(topic="orders", topic_id="0f" * 16, values={"cleanup.policy": "compact", "retention.ms": None})
REMEMBERED = Remembered(side=SIDE, producer_id=1000, epoch=4, last_sequence=-1, end=9, fenced=True)


@pytest.mark.parametrize(
    "entry",
    [
        checkpoint(),
        checkpoint(copied=LastCopied(7, 2, "0123456789abcdef", 6)),
        chunk("a", 1, 0, Run(0, 5, 3), Run(9, 12, 1)),
        SKIPPED,
        FLOW,
        PIN,
        replace(PIN, copied=None),
        HALT,
        REMEMBERED,
        SUSPENDED,
        LOOP,
        UPSTREAM,
    ],
)
def test_what_is_written_is_read(entry: Entry) -> None:
    assert read_entry(entry.key(), entry.value()) == entry
    ledger = Ledger()
    ledger.apply(entry.key(), entry.value())
    ledger.apply(entry.key(), None)
    ledger.apply(b"never heard of", None)
    assert ledger.sides == []
    assert list(ledger.skipped()) == []
    assert ledger.checkpoint(SIDE) is None
    assert (ledger.pin(SIDE), ledger.halt(SIDE), ledger.halts, ledger.flows) == (None, None, [], [])
    assert ledger.remembered(SIDE) is None
    assert ledger.accepted_loop(SIDE, LOOP.by) is None


def test_what_flows_and_partitions_are() -> None:
    """The newest of each; of one partition, a pin and a halt; flows by id and source cluster."""
    ledger = Ledger(lean=True)
    other = replace(HALT, side=Side("a", 0, "a"))
    for entry in (FLOW, replace(FLOW, source_cluster="c9"), PIN, replace(PIN, source_id="cd" * 16), HALT, other):
        ledger.apply(entry.key(), entry.value())
    assert [one.source_cluster for one in ledger.flows] == ["c1", "c9"]
    assert ledger.pin(SIDE) == replace(PIN, source_id="cd" * 16)
    assert (ledger.halt(SIDE), ledger.halts) == (HALT, [other, HALT])
    assert ledger.sides == []
    ledger.apply(HALT.key(), None)
    assert ledger.halt(SIDE) is None
    assert ledger.pin(SIDE) is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (checkpoint().key(), b"["),
        (checkpoint().key(), b"{}"),
        (checkpoint().key(), b'{"v":2}'),
        (checkpoint().key(), chunk("a", 1, 0).value()),
        (chunk("a", 1, 0).key(), b'{"v":1,"order":[1,2,3],"since":0,"sealed":false,"runs":[1]}'),
    ],
)
def test_what_is_no_entry_is_told(key: bytes, value: bytes) -> None:
    with pytest.raises(StateError):
        read_entry(key, value)


@pytest.mark.parametrize("key", [b'{"kind":"heartbeat"}', b"", b"{}", b"[]", b"somebody's"])
def test_keys_that_are_not_ours_are_passed_over(key: bytes) -> None:
    """Of a later version, or of somebody who wrote there by mistake: they take nothing of ours away."""
    assert read_entry(key, b"{}") is None


def test_the_later_takeover_counts_whatever_a_predecessor_writes_afterwards() -> None:
    late = checkpoint("a", 1, 50)
    ledger = Ledger()
    for entry in (checkpoint("a", 1, 10), checkpoint("b", 2, 40), late):
        ledger.put(entry)
    assert ledger.checkpoint(SIDE) == checkpoint("b", 2, 40)
    assert ledger.checkpoints(SIDE) == [late, checkpoint("b", 2, 40)]
    assert ledger.sides == [SIDE]
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
    assert ledger.of(Side("other", 0, "t")).checkpoint(SIDE) is None


def test_what_older_versions_wrote_is_confirmed() -> None:
    told = json.loads(checkpoint().value())
    del told["confirmed"]
    found = read_entry(checkpoint().key(), json.dumps(told).encode())
    assert isinstance(found, Checkpoint)
    assert found.confirmed


def test_skipped_ranges_by_topic() -> None:
    other = Skipped(side=Side("a", 0, "a"), start=1, end=2, cause="retention_overtook", at_ms=5)
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
            [replace(PIN, side=SIDE._replace(partition=0)), replace(HALT, side=SIDE._replace(partition=1))],
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
