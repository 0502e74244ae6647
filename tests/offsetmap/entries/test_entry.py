"""Each kind of record: what is written is read, and what no mirror wrote is refused."""

import json
from dataclasses import replace

import pytest

from mirror.offsetmap.entries.checkpoint import Checkpoint, SkippedOffsets
from mirror.offsetmap.entries.chunks import MapChunk, Order
from mirror.offsetmap.entries.entry import Entry, StateError, read_entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import (
    AcceptedLoop,
    Edge,
    FlowEntry,
    Hop,
    KeptHalt,
    LastCopied,
    Pin,
    Remembered,
    Suspended,
    Upstream,
)
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.records.identity import Identity

SIDE = Subject("orders", 3, "all-orders")


def checkpoint(writer: str = "a", takeover: int = 1, source: int = 7, **changes: object) -> Checkpoint:
    fields = {
        "subject": SIDE,
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


def chunk(writer: str, takeover: int, since: int, *runs: Run, number: int = 0, sealed: bool = False) -> MapChunk:
    order = Order(takeover, 1000, 4)
    return MapChunk(
        subject=SIDE, writer=writer, order=order, number=number, since=since, map=OffsetMap(runs), sealed=sealed
    )


SKIPPED = SkippedOffsets(subject=SIDE, start=10, end=20, cause="unexplained_gap", at_ms=5)


FLOW = FlowEntry(flow="dc1->dc2", source_cluster="c1", destination_cluster="c2", at_ms=3)
PIN = Pin(
    subject=SIDE,
    source_id="ab" * 16,
    destination_id=None,
    source_cluster="c1",
    copied=LastCopied(70, 4, "0123456789abcdef", 69),
    accepted=12,
    at_ms=4,
)
HALT = KeptHalt(subject=SIDE, reason="recreated", detail="d", remedy="r", at_ms=5, source_id="ab" * 16)
LOOP = AcceptedLoop(subject=SIDE, by="mirror-internal.back", digest="0123456789abcdef")
UPSTREAM = Upstream(
    subject=SIDE,
    hops=(
        Hop(Edge("a->b", "c1", "orders", "c2", "all-orders"), "0123456789abcdef", 8),
        Hop(Edge("é", "c0", "o", "c1", "orders"), "", 9),
    ),
    at_ms=7,
)
SUSPENDED = Suspended(topic="orders", topic_id="0f" * 16, values={"cleanup.policy": "compact", "retention.ms": None})
REMEMBERED = Remembered(subject=SIDE, producer_id=1000, epoch=4, last_sequence=-1, end=9, fenced=True)


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
    assert ledger.has(entry.key())
    ledger.apply(entry.key(), None)
    assert not ledger.has(entry.key())
    ledger.apply(b"never heard of", None)
    assert ledger.subjects == []
    assert list(ledger.skipped()) == []
    assert ledger.checkpoint(SIDE) is None
    assert (ledger.pin(SIDE), ledger.halt(SIDE), ledger.halts, ledger.flows) == (None, None, [], [])
    assert ledger.remembered(SIDE) is None
    assert ledger.accepted_loop(SIDE, LOOP.by) is None


def test_what_flows_and_partitions_are() -> None:
    """The newest of each; of one partition, a pin and a halt; flows by id and source cluster."""
    ledger = Ledger(lean=True)
    other = replace(HALT, subject=Subject("a", 0, "a"))
    for entry in (FLOW, replace(FLOW, source_cluster="c9"), PIN, replace(PIN, source_id="cd" * 16), HALT, other):
        ledger.apply(entry.key(), entry.value())
    assert [one.source_cluster for one in ledger.flows] == ["c1", "c9"]
    assert ledger.pin(SIDE) == replace(PIN, source_id="cd" * 16)
    assert (ledger.halt(SIDE), ledger.halts) == (HALT, [other, HALT])
    assert ledger.subjects == []
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


def test_what_older_versions_wrote_is_confirmed() -> None:
    told = json.loads(checkpoint().value())
    del told["confirmed"]
    found = read_entry(checkpoint().key(), json.dumps(told).encode())
    assert isinstance(found, Checkpoint)
    assert found.confirmed


def test_the_newest_note_of_what_was_copied() -> None:
    """A later leader's; then the one that is further; then the one that knows a batch, whoever wrote it."""
    notes = [
        LastCopied(90, 3, "0123456789abcdef", 90),
        LastCopied(60, 4, "0123456789abcdef", 60),
        LastCopied(70, 4),
        LastCopied(70, 4, "0123456789abcdef", 69),
    ]
    assert sorted(reversed(notes), key=lambda one: one.rank) == notes
