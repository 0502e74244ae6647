"""A source whose log cleaner has rewritten originals: which were copied is told by the records that are left."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mirror.offsetmap.compare import alignment, kept, looks, survivors
from mirror.offsetmap.compare.alignment import Alignment, Ambiguous, Differs, NeverArrived
from mirror.offsetmap.compare.looks import ComparedBatch, Fit
from mirror.offsetmap.runs import Run
from mirror.records.header import BatchHeader
from tests.net.stage.scripted import OWN, stepped
from tests.records.builders import Record, kafka_batch
from tests.records.cleaner import TIME, cleaned

COUNT = 3
"""Records of a batch."""


def of(name: str) -> list[Record]:
    """What a batch of this name holds, at offsets from 0 on."""
    return [Record(at, TIME, b"%s %d" % (name.encode(), at), b"value of %s" % name.encode()) for at in range(COUNT)]


def tombstone(name: str) -> list[Record]:
    return [Record(0, TIME, name.encode(), None)]


def one(name: str, value: str) -> list[Record]:
    return [Record(0, TIME, name.encode(), value.encode())]


def original(base: int, records: Sequence[Record], *left: int, horizon: bool = False) -> bytes:
    """At the source. ``left``: the cleaner has been there, and these records are left."""
    batch = kafka_batch(records, base_offset=base)
    return swept(batch, records, left, horizon=horizon) if left or horizon else batch


def swept(batch: bytes, records: Sequence[Record], left: Collection[int], *, horizon: bool = False) -> bytes:
    base = BatchHeader.read(batch).base_offset
    kept = [record._replace(offset=base + record.offset) for record in records if record.offset in left]
    return cleaned(batch, kept, horizon=horizon, codec=0)


def copy(
    base: int,
    records: Sequence[Record],
    left: Collection[int] | None = None,
    *,
    epoch: int = 0,
    sequence: int | None = None,
) -> bytes:
    """One of the flow's; its sequence is its offset. ``left``: of what its cleaner has left."""
    sequence = base if sequence is None else sequence
    batch = kafka_batch(records, base_offset=base, producer_id=OWN, producer_epoch=epoch, base_sequence=sequence)
    return batch if left is None else swept(batch, records, left)


TOMBSTONES = (
    [
        original(0, one("k0", "v")),
        original(3, tombstone("k3"), 0, horizon=True),
        original(4, tombstone("k4"), 0, horizon=True),
        original(5, one("k5", "v")),
    ],
    [copy(0, one("k0", "v")), copy(1, one("k1", "v")), copy(2, one("k2", "v")), copy(3, tombstone("k3"))],
)
"""k1 and k2 were cleaned away. Both tombstones were rewritten, and that of k4 was never copied."""
SPARSE = (
    [original(0, of("a"), 1, 2), original(6, of("c"), 1, 2), original(9, of("never copied"), 1, 2)],
    [copy(0, of("a")), copy(3, of("b")), copy(6, of("c"))],
)
"""The middle batch was cleaned away, and of each other one the first record."""


@pytest.mark.parametrize(
    ("logs", "runs", "position"),
    [(TOMBSTONES, [Run(0, 0, 1), Run(3, 3, 1)], 4), (SPARSE, [Run(0, 0, 3), Run(6, 6, 3)], 9)],
    ids=["tombstones", "records"],
)
async def test_what_was_never_copied_does_not_count_as_copied(logs: Any, runs: list[Run], position: int) -> None:
    step = await stepped(*logs)
    assert (list(step.map), step.source_offset) == (runs, position)


UNTOLD = {
    "emptied at the destination": ([original(3, of("b"))], [copy(0, of("a"), [])]),
    "nothing in common": ([original(3, of("b"), 1)], [copy(0, of("b"), [0, 2])]),
    "the original has more": ([original(3, of("b"))], [copy(0, of("b"), [0, 2])]),
    "the copies that tell stand behind": (
        [original(6, of("b")), original(9, of("c"))],
        [copy(0, of("a"), []), copy(3, of("c"))],
    ),
    "another was passed behind it": (
        [original(2, one("k", "v")), original(4, one("x", "v"))],
        [copy(0, one("k", "v")), copy(1, one("k", "w"))],
    ),
}
"""The first copy's original is the first that the source still has, or it is gone, as there is room for."""


@pytest.mark.parametrize("logs", UNTOLD.values(), ids=UNTOLD)
async def test_what_nothing_tells_is_ambiguous(logs: Any) -> None:
    """Were it copied, going on from it would copy it twice; were it not, going on behind it would lose it."""
    with pytest.raises(Ambiguous):
        await stepped(*logs)
    accepted = await stepped(*logs, accept_gap=True)
    assert accepted.source_offset <= BatchHeader.read(logs[0][0]).base_offset


@pytest.mark.parametrize("left", [[], [0], [1, 2]])
async def test_where_there_is_one_place_only_nothing_has_to_tell(left: list[int]) -> None:
    """What the destination's cleaner left of its copy may be less than the source has."""
    step = await stepped([original(0, of("a"), 0), original(3, of("b"))], [copy(0, of("a"), left)])
    assert (list(step.map), step.source_offset) == ([Run(0, 0, 3)], 3)


async def test_what_is_too_large_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not opened."""
    monkeypatch.setattr("mirror.records.content.opening.MOST_OPENED", 10)
    with pytest.raises(Ambiguous):
        await stepped([original(3, of("b"), 1)], [copy(0, of("b"))])


async def test_what_is_not_kept_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so much waits for a way that may come to it yet."""
    logs = [original(6, of("b"), 1)], [copy(0, of("a")), copy(3, of("b"))]
    assert (await stepped(*logs)).source_offset == 9
    monkeypatch.setattr(kept, "MOST_KEPT", 10)
    with pytest.raises(Ambiguous):
        await stepped(*logs)


async def test_records_are_kept_as_long_as_a_way_may_come_to_them() -> None:
    """Of the others, looks alone."""
    step = await stepped(
        [original(COUNT * at, of(f"text {at}")) for at in range(20)],
        [copy(COUNT * at, of(f"text {at}")) for at in range(20)],
    )
    assert step.alignment._kept.size == 0
    assert await step.next_of_source() is None


# -- what comes back with another leader -------------------------------------------------------------------------------

EPOCH = 0
"""Of the source's leader when it was copied."""
BACK = [original(COUNT * at, of(f"text {at}")) for at in range(6)]
"""Of these, numbers 1, 2 and 4 were cleaned away when it was copied."""
LEFT = [copy(0, of("text 0")), copy(3, of("text 3")), copy(6, of("text 5"))]


async def test_what_came_back_was_not_copied_and_is_left_out() -> None:
    step = await stepped(BACK, LEFT, known_epoch=EPOCH)
    assert list(step.map) == [Run(0, 0, 3), Run(9, 3, 3), Run(15, 6, 3)]
    assert (step.source_offset, step.alignment.passed) == (18, 0)


async def test_what_came_back_behind_the_last_copy_is_copied() -> None:
    """Whatever is newer comes behind it."""
    assert (await stepped(BACK, LEFT[:2], known_epoch=EPOCH)).source_offset == 12


@pytest.mark.parametrize("left_out", [1, 10_000], ids=["too many", "not compacted"])
async def test_what_is_not_compacted_does_not_come_back(left_out: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "MOST_LEFT_OUT", left_out)
    with pytest.raises(Differs, match="offset 3 of destination differs from offset 3 of source"):
        await stepped(BACK, LEFT, known_epoch=EPOCH if left_out == 1 else -1)


async def test_what_may_have_been_lost_is_not_left_out() -> None:
    """
    1. Sequences are missing between two copies, as many as an original has that came back: it does not count as a
       copy that the destination has lost.
    2. Another worker goes on behind the last copy: nothing says what its predecessor had still sent.
    """
    with pytest.raises(NeverArrived):
        await stepped(BACK, [LEFT[0], copy(3, of("text 3"), sequence=6)], known_epoch=EPOCH)
    with pytest.raises(Differs):
        await stepped(BACK, [LEFT[0], copy(3, of("text 3"), epoch=1, sequence=0)], known_epoch=EPOCH)


async def test_what_is_newer_did_not_come_back() -> None:
    """The source was truncated, and the last batch copied was written once more, behind others."""
    newer = [kafka_batch(of(f"text {at}"), base_offset=COUNT * at, leader_epoch=1) for at in (1, 2, 3)]
    with pytest.raises(Differs):
        await stepped([BACK[0], *newer], LEFT[:2], known_epoch=EPOCH)
    assert (await stepped([BACK[0], *newer], LEFT[:2], known_epoch=1)).source_offset == 12


@pytest.mark.parametrize("known_epoch", [-1, EPOCH], ids=["not compacted", "compacted"])
async def test_messages_of_old_formats_have_no_epoch(known_epoch: int) -> None:
    """
    1. A source with messages from before Kafka 0.11 loses its end, and the last one copied is written once more, behind
       another one. Nothing says that this one came back, so it is not left out.
    2. The same with all of them copied is a copy.
    """
    old = [kafka_batch(of(f"text {at}"), base_offset=COUNT * at, leader_epoch=-1) for at in range(3)]
    with pytest.raises(Differs):
        await stepped(old, [copy(0, of("text 0")), copy(3, of("text 2"))], known_epoch=known_epoch)
    copies = [copy(COUNT * at, of(f"text {at}")) for at in range(3)]
    assert (await stepped(old, copies, known_epoch=known_epoch)).source_offset == 9


async def test_what_may_be_an_earlier_one_is_ambiguous() -> None:
    """What is left of the copy does not tell: it may be of one whose other records are left, or of the next."""
    here = [BACK[0], original(3, of("text 1")), original(6, of("text 2"), 1), original(9, of("text 3"))]
    there = [LEFT[0], copy(3, of("text 3"), [0, 2])]
    with pytest.raises(Ambiguous):
        await stepped(here, there, known_epoch=EPOCH)


# -- mutations ---------------------------------------------------------------------------------------------------------


async def test_by_length_alone_records_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: a batch that was rewritten agrees with any of its length."""

    async def by_length(original: ComparedBatch, copy: ComparedBatch, _: Any) -> Fit:
        same = original.look == copy.look
        rewritten = survivors.cleaned(original.header) or survivors.cleaned(copy.header)
        return Fit.WHOLE if same or (rewritten and original.length == copy.length) else Fit.NONE

    monkeypatch.setattr(alignment, "fit", by_length)
    assert (await stepped(*TOMBSTONES)).source_offset == 5
    assert (await stepped(*SPARSE)).source_offset == 12


async def test_without_doubt_in_what_cannot_tell_records_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: what nothing speaks against is a match like any other."""
    fit = looks.fit

    async def optimistic(*of: Any) -> Fit:
        found = await fit(*of)
        return Fit.WHOLE if found is Fit.OPEN else found

    monkeypatch.setattr(alignment, "fit", optimistic)
    for name in list(UNTOLD)[:4]:
        here, there = UNTOLD[name]
        assert (await stepped(here, there)).source_offset == BatchHeader.read(here[-1]).next_offset, name


async def test_by_number_alone_records_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: the way with most matches is right, whatever it went over besides."""

    def by_number(self: Alignment) -> Any:
        self._paths = [replace(path, sure_from=(0, 0)) for path in self._paths]
        return decide(self)

    decide = Alignment.decide
    monkeypatch.setattr(Alignment, "decide", by_number)
    assert (await stepped(*UNTOLD["the copies that tell stand behind"])).source_offset == 12
    assert (await stepped(*UNTOLD["another was passed behind it"])).source_offset > 2


async def test_without_sequences_what_was_lost_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: what a copy does not fit is left out, whoever wrote it."""
    take = Alignment.take

    async def always(self: Alignment, copy: ComparedBatch, *, follows: bool) -> bool:
        return await take(self, copy, follows=True)

    monkeypatch.setattr(Alignment, "take", always)
    step = await stepped(BACK, [LEFT[0], copy(3, of("text 3"), epoch=1, sequence=0)], known_epoch=EPOCH)
    assert step.source_offset == 12


UNSHOWN = {
    "the same bytes": ([original(0, of("a"))], [copy(0, of("a"))], False),
    "its original is gone": ([original(0, of("a")), original(6, of("c"))], [copy(0, of("a")), copy(3, of("b"))], True),
    "another's is there behind it": (
        [original(0, of("a")), original(6, of("c"))],
        [copy(0, of("a")), copy(3, of("b")), copy(6, of("c"))],
        False,
    ),
    "emptied": ([original(0, of("a"))], [copy(0, of("a"), [])], True),
    "emptied, and more is gone behind it": (
        [original(0, of("a")), original(3, of("b")), original(6, of("c"), 0)],
        [copy(0, of("a")), copy(3, of("b"), []), copy(9, of("d"), [], sequence=6)],
        True,
    ),
}
"""Whether nothing shows where the source had the last copies."""


@pytest.mark.parametrize(("here", "there", "unshown"), UNSHOWN.values(), ids=UNSHOWN)
async def test_whether_something_shows_where_the_last_copies_were(here: Any, there: Any, unshown: bool) -> None:
    step = await stepped(here, there)
    assert step.alignment.unshown == unshown


@pytest.mark.parametrize("gone", [3, 2], ids=["a batch", "a piece of it"])
async def test_what_is_gone_shows_nothing(gone: int) -> None:
    """A copy without its original, and behind it some that the destination has deleted."""
    logs = [original(0, of("a")), original(6, of("c"))], [copy(0, of("a")), copy(3, of("b"))]
    step = await stepped(*logs, may_be_cut=True)
    assert await step.alignment.skip(gone, [gone])
    step.decide()
    assert (step.source_offset, step.alignment.unshown) == (6 + gone, True)
