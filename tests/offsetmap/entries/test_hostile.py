"""Anybody who may write to an internal topic may have written what is in it: it loads as an entry that can be used, it
is passed over, or it is refused by name."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirror.offsetmap import fields
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.entry import Entry, StateError, read_entry
from mirror.offsetmap.entries.keys import dump
from mirror.offsetmap.entries.pins import MOST_HOPS, AcceptedLoop, FlowEntry, KeptHalt, LastCopied, Note, Pin, Suspended
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.runs import MapError, Run
from mirror.records.filler import filler_id
from mirror.records.identity import producer_id
from mirror.relay.assignment import read_committed
from tests.offsetmap.entries.test_entry import (
    FLOW,
    HALT,
    PIN,
    REMEMBERED,
    SIDE,
    SKIPPED,
    SUSPENDED,
    UPSTREAM,
    checkpoint,
    chunk,
)

NOTE = Note(subject=SIDE, writer="a", source_id="ab" * 16, destination_id=None, copied=LastCopied(7, 2, "ab" * 8, 7))
ENTRIES: list[Entry] = [
    checkpoint(),
    chunk("a", 1, 0, Run(0, 5, 3), Run(9, 12, 1)),
    SKIPPED,
    FLOW,
    PIN,
    NOTE,
    HALT,
    AcceptedLoop(subject=SIDE, by="mirror-internal.back", digest="d"),
    REMEMBERED,
    SUSPENDED,
    UPSTREAM,
]
DEEP = b"[" * 100_000
WRONG: list[Any] = [
    None,
    True,
    False,
    5,
    -1,
    -2,
    1.0,
    1 << 31,
    1 << 63,
    10**30,
    float("nan"),
    "",
    "zz",
    "ab" * 15,
    "AB" * 16,
    "ab " * 16,
    "a\0b",
    "\ud800",
    "é" * 2000,
    [],
    [True] * 3,
    [1, 1, 10**30],
    [1, 2, "3"],
    [0, -1, 1],
    ["ab", 0, "", 0],
    [[]],
    {},
    {"a": 1},
]
JSON = st.recursive(
    st.sampled_from(WRONG) | st.integers() | st.text() | st.booleans(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def use(entry: Entry) -> None:
    """What the mirror does with an entry: it is written again, looked up, shown, compared and computed with."""
    assert read_entry(entry.key(), entry.value()) == entry
    repr(entry).encode()
    ledger = Ledger()
    ledger.apply(entry.key(), entry.value())
    assert len(ledger.flows) + len(ledger.halts) + len(list(ledger.skipped())) + len(ledger.subjects) <= 1
    if isinstance(entry, FlowEntry):
        for compute in (producer_id, filler_id):
            assert compute(flow=entry.flow, cluster_id=entry.source_cluster, topic="t", partition=0) > 0
        return
    if isinstance(entry, Suspended):
        assert ledger.suspended(entry.topic) == entry
        return
    with suppress(MapError):  # a checkpoint without its map
        ledger.map(entry.subject)
    assert ledger.own(entry.subject) is not None
    ledger.checkpoint(entry.subject)
    if isinstance(entry, Pin | Note | KeptHalt | Checkpoint):
        for topic_id in (entry.source_id, entry.destination_id):
            assert len(bytes.fromhex(topic_id or "00" * 16)) == 16
    ledger.apply(entry.key(), None)
    assert ledger.pin(entry.subject) is None
    assert ledger.checkpoints(entry.subject) == []
    assert ledger.notes(entry.subject) == []


def check(key: bytes, value: bytes) -> bool:
    """Whether it loads; what does can be used."""
    try:
        entry = read_entry(key, value)
    except StateError as error:
        told = str(error)
    else:
        if entry is not None:
            use(entry)
        return entry is not None
    assert len(told) < 5000
    return False


@pytest.mark.parametrize(
    "key", [DEEP, b"1" * 5000, b'{"kind":["halt"]}', b"true", b'{"kind":"halt"', b"\xff\xfe", b"null"]
)
def test_keys_that_are_none_of_ours(key: bytes) -> None:
    assert read_entry(key, b"{}") is None


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_values_that_are_not_ours(entry: Entry) -> None:
    """Under a key of ours."""
    for value in (
        DEEP,
        b'{"v":' + DEEP,
        b"1" * 5000,
        b"[]",
        b"1",
        b"null",
        b'"v"',
        b"\xff",
        b'{"v":true}',
        b'{"v":[]}',
    ):
        assert not check(entry.key(), value)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_every_field_with_every_wrong_value(entry: Entry) -> None:
    """One at a time, of the value and of the key; and each of them missing."""
    for at, told in enumerate((json.loads(entry.key()), json.loads(entry.value()))):
        for name in told:
            for wrong in WRONG:
                changed = [dump(told | {name: wrong}) if one == at else was for one, was in enumerate(_both(entry))]
                check(*changed)
            del (less := dict(told))[name]
            check(*(dump(less) if one == at else was for one, was in enumerate(_both(entry))))


def _both(entry: Entry) -> tuple[bytes, bytes]:
    return entry.key(), entry.value()


@pytest.mark.parametrize(
    ("entry", "name", "wrong"),
    [
        (PIN, "source_id", 5),
        (PIN, "source_id", "zz" * 16),
        (PIN, "destination_id", "ab " * 16),
        (PIN, "accepted", True),
        (PIN, "accepted", -1),
        (PIN, "copied", [1 << 63, 0, "", 0]),
        (PIN, "copied", [1, 0, "", False]),
        (PIN, "copied", [1, 1 << 31, "", 0]),
        (PIN, "at_ms", 1 << 60),
        (PIN, "source_cluster", "a\0b"),
        (NOTE, "copied", None),
        (NOTE, "copied", [1, 0, "", True]),
        (HALT, "reason", "a\nb"),
        (HALT, "detail", 5),
        (SKIPPED, "end", 9),
        (FLOW, "destination_cluster", None),
        (checkpoint(), "own", {"1": 2}),
        (checkpoint(), "own", [True]),
        (checkpoint(), "closed", 1),
        (checkpoint(), "source", -1),
        (checkpoint(), "order", [1, 2]),
        (checkpoint(), "identity", [1, 1 << 15, 0]),
        (chunk("a", 1, 0), "runs", {}),
        (chunk("a", 1, 0), "runs", [True, 1, 1]),
        (chunk("a", 1, 0), "runs", [1 << 62, 0, 1 << 62]),
        (chunk("a", 1, 0), "runs", [1 << 64, 0, 1]),
        (REMEMBERED, "producer", [1, 2, 1 << 31]),
        (SUSPENDED, "values", {"retention.ms": 7}),
        (SUSPENDED, "values", ["retention.ms"]),
        (UPSTREAM, "hops", {}),
        (UPSTREAM, "hops", [["a->b", "c1", "orders", "c2", "all-orders", ""]]),
        (UPSTREAM, "hops", [["a->b", "c1", "no topic", "c2", "all-orders", "", 8]]),
        (UPSTREAM, "hops", [["a->b", "c1", "orders", "c2", "all-orders", "digest", 8]]),
        (UPSTREAM, "hops", [["a->b", "c1", "orders", "c2", "all-orders", "", True]]),
        (UPSTREAM, "hops", [["a\nb", "c1", "orders", "c2", "all-orders", "", 8]]),
        (UPSTREAM, "hops", [["a->b", "c1", "orders", "c2", "all-orders", "", 8]] * 2),
        (UPSTREAM, "hops", [[f"f{at}", "c1", "o", "c2", "o", "", 8] for at in range(MOST_HOPS + 1)]),
        (UPSTREAM, "at_ms", -1),
    ],
)
def test_what_no_mirror_writes_is_refused(entry: Entry, name: str, wrong: object) -> None:
    with pytest.raises(StateError):
        read_entry(entry.key(), dump(json.loads(entry.value()) | {name: wrong}))


def test_a_key_of_ours_in_other_bytes_is_refused() -> None:
    """A tombstone for the one would leave the other."""
    with pytest.raises(StateError, match="is not written as"):
        read_entry(json.dumps(json.loads(PIN.key())).encode(), PIN.value())


def test_halves_of_characters_in_a_text_are_replaced() -> None:
    found = read_entry(HALT.key(), dump(json.loads(HALT.value()) | {"detail": "a\ud800\nb"}))
    assert isinstance(found, KeptHalt)
    assert found.detail == "a?\nb"


@given(st.binary(), st.binary())
@example(DEEP, b"")
def test_any_bytes(key: bytes, value: bytes) -> None:
    check(key, value)


@given(st.sampled_from(ENTRIES), st.data())
def test_any_fields(entry: Entry, data: st.DataObject) -> None:
    """Several fields of key and value are replaced by any JSON."""
    key, value = json.loads(entry.key()), json.loads(entry.value())
    for told in (key, value):
        for name in data.draw(st.lists(st.sampled_from(sorted(set(told) - {"kind"})), max_size=2, unique=True)):
            told[name] = data.draw(JSON)
    check(dump(key), dump(value))


@given(st.lists(st.tuples(st.integers(0, 1 << 63), st.integers(0, 1 << 63), st.integers(0, 1 << 63)), max_size=4))
def test_any_runs(runs: list[tuple[int, int, int]]) -> None:
    one = chunk("a", 1, 0)
    check(one.key(), dump(json.loads(one.value()) | {"runs": [number for run in runs for number in run]}))


@given(st.binary() | JSON.map(lambda value: json.dumps({"id": value}).encode()))
@example(DEEP)
@example(b'{"id":"","epoch":1e400,"digest":"","at":0}')
@example(b'{"id":"","epoch":%d,"digest":"","at":0}' % (1 << 31))
def test_any_metadata_of_a_group(metadata: bytes) -> None:
    found = read_committed(7, metadata.decode(errors="surrogateescape"))
    assert found.offset == 7
    assert -1 <= found.epoch <= fields.MOST_I32
