"""Batches that are rewritten on their way: what is put into the outbox, and the books that are kept of it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.net.buffers import Frame, FramePool
from mirror.reasons import HaltReason
from mirror.records.admit import Halt, Terms
from mirror.records.content.raw import PlacedRecord, placed_records
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Codec
from mirror.records.identity import Identity
from mirror.records.intact import is_intact
from mirror.relay.holes.parking import park
from mirror.relay.hot import deep
from mirror.relay.hot.deep import Rewriter
from mirror.relay.hot.forward import Unproven, forward
from mirror.relay.hot.native import is_compiled
from mirror.relay.hot.plain import InnerLoop
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Batch, Hole
from tests.records.builders import Record, kafka_batch, sealed
from tests.records.cleaner import TIME, cleaned, record, written

VERSION = 9
FORMS = (False, True) if is_compiled() else (False,)
PRODUCER = 1 << 62 | 4_321 << 8
SPARSE = cleaned(written(103), [record(103), record(105)])
"""Offsets 103 to 105, and nothing at 104."""


class Run:
    """A partition that gets record sets."""

    def __init__(self, terms: Terms | None = None, *, due: int = 100, compiled: bool = False) -> None:
        self.pool = FramePool(budget=1 << 22, frame_size=1 << 20)
        self.partition = Partition("t", 0)
        self.partition.phase = Phase.ACTIVE
        self.partition.terms = terms or Terms(compacted=True, rewrites=True)
        self.partition.cursor.due = due
        self.partition.queue.acknowledged = due
        self.partition.cursor.identity = Identity(PRODUCER, 0, 0)
        self.rewriter = Rewriter()
        self.loop = InnerLoop(VERSION, compiled=compiled)

    def take(self, *batches: bytes) -> Halt | Unproven | None:
        """Forwards an answer with these batches, and lets go of its frame."""
        data = b"".join(batches)
        frame = self.pool.take(len(data))
        frame.body[:] = data
        halt = forward(frame, 0, len(data), self.partition, self.loop, rewriter=self.rewriter)
        frame.release()
        return halt

    @property
    def items(self) -> list[Batch | Hole]:
        """What waits."""
        return [item if isinstance(item, Hole) else Batch(*item) for item in self.partition.queue.outbox]

    @property
    def shape(self) -> list[str | int]:
        """What waits: records of batches, and offsets of holes as text."""
        return [f"hole of {one.records}" if isinstance(one, Hole) else one.records for one in self.items]

    def read(self) -> list[PlacedRecord]:
        """The records as the destination would have them, after a check of each batch that waits."""
        offset, identity = self.partition.queue.acknowledged, Identity(PRODUCER, 0, 0)
        found: list[PlacedRecord] = []
        for item in self.items:
            if isinstance(item, Hole):
                assert item.before == identity
                identity = identity.behind_markers()
            else:
                stored = item.head[-HEADER_SIZE:] + bytes(item.payload)
                header = BatchHeader.read(stored)
                assert is_intact(stored)
                assert header.size == len(stored)
                assert (header.base_offset, header.record_count) == (0, item.records)
                assert Identity(header.producer_id, header.producer_epoch, header.base_sequence) == identity
                found += placed_records(header._replace(base_offset=offset), stored[HEADER_SIZE:])
                identity = identity.after(item.records)
            offset += item.records
        assert (offset, identity) == (self.partition.cursor.due, self.partition.cursor.identity)
        return found

    def send_all(self) -> None:
        """All that waits is acknowledged; every frame goes back."""
        queue = self.partition.queue
        while queue.outbox:
            queue.let_go(queue.outbox.popleft())
        assert queue.frames == 0
        assert self.pool.used == 0


def placed(batches: Sequence[bytes], due: int = 0) -> list[PlacedRecord]:
    found = (one for batch in batches for one in placed_records(BatchHeader.read(batch), batch[HEADER_SIZE:]))
    return [one for one in found if one.offset >= due]


def appended(batch: bytes, at_ms: int) -> bytes:
    """The batch as a broker stores it in a topic with LogAppendTime."""
    header = BatchHeader.read(batch)
    new = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=at_ms)
    return sealed(new.pack() + batch[HEADER_SIZE:])


@pytest.mark.parametrize("compiled", FORMS)
def test_a_batch_with_holes_among_plain_ones(compiled: bool) -> None:
    run = Run(compiled=compiled)
    batches = [written(100), SPARSE, written(106), written(109)]
    assert run.take(*batches) is None
    assert run.shape == [3, 1, "hole of 1", 1, 3, 3]
    assert run.read() == placed(batches)
    assert run.partition.cursor.marks[-1].next_offset == 112
    assert run.rewriter.opened == {"sparse_batch": 1}
    run.send_all()


@pytest.mark.parametrize("compiled", FORMS)
def test_frames_go_back_as_their_batches_do(compiled: bool) -> None:
    run = Run(compiled=compiled)
    run.take(written(100), SPARSE, written(106))
    frames = [item.frame for item in run.items]
    fetched, own = frames[0], frames[3]
    assert isinstance(fetched, Frame)
    assert isinstance(own, Frame)
    assert not fetched.is_copy
    assert own.is_copy
    assert frames == [fetched, None, None, own, fetched]
    assert run.partition.queue.frames == 3
    run.send_all()


def test_a_hole_at_the_end_of_a_batch_joins_the_gap_behind_it() -> None:
    run = Run()
    batches = [cleaned(written(100), [record(100)]), written(110), written(113)]
    run.take(*batches)
    assert run.shape == [1, "hole of 9", 3, 3]
    assert run.read() == placed(batches)


def test_the_last_batch_of_an_answer() -> None:
    run = Run()
    run.take(written(100), SPARSE)
    assert run.partition.cursor.marks[-1].header == SPARSE[:HEADER_SIZE]
    assert run.partition.cursor.marks[-1].next_offset == 106
    run.send_all()


def test_what_is_counted_is_what_is_stored() -> None:
    run = Run()
    run.take(written(100), SPARSE, written(106))
    sizes = [HEADER_SIZE + len(item.payload) for item in run.items if not isinstance(item, Hole)]
    assert (run.partition.queue.tally.put_batches, run.partition.queue.tally.put_bytes) == (4, sum(sizes))
    run.partition.queue.tally.returned(run.items)
    assert (run.partition.queue.tally.put_batches, run.partition.queue.tally.put_bytes) == (0, 0)


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("wanted", Codec)
def test_a_codec_on_purpose(compiled: bool, wanted: Codec) -> None:
    """Only what has another one is opened; it is counted by this reason."""
    run = Run(Terms(rewrites=True, codec=wanted), compiled=compiled)
    batches = [written(100 + 3 * number, codec) for number, codec in enumerate(Codec)]
    assert run.take(*batches) is None
    assert run.read() == placed(batches)
    others = sum(BatchHeader.read(one).codec_bits != wanted for one in batches)
    assert run.rewriter.opened == {"other_codec": others}
    assert others >= 2
    codecs = {BatchHeader.read(item.head[-HEADER_SIZE:]).codec_bits for item in run.items if not isinstance(item, Hole)}
    assert codecs == {wanted}
    run.send_all()


def test_append_times_are_kept() -> None:
    run = Run(Terms(rewrites=True))
    batches = [appended(written(100), TIME + 5_000), written(103)]
    assert run.take(*batches) is None
    assert run.read() == placed(batches)
    assert run.rewriter.opened == {"log_append_time": 1}


def test_a_batch_over_the_limit_is_split() -> None:
    whole = written(100)
    run = Run(Terms(rewrites=True, max_batch_size=len(whole) - 1))
    assert run.take(whole) is None
    assert len(run.shape) > 1
    assert run.read() == placed([whole])
    assert run.rewriter.opened == {"too_large": 1}
    assert run.rewriter.splits.built == len(run.shape) + run.rewriter.splits.split


def test_a_record_over_the_limit_halts_there() -> None:
    whole = written(103)
    run = Run(Terms(rewrites=True, max_batch_size=70))
    halt = run.take(written(100), whole)
    assert isinstance(halt, Halt)
    assert halt.reason is HaltReason.TOO_LARGE
    assert "offset 100" in halt.detail
    assert halt.size > 70
    assert run.partition.cursor.due == 100


def test_a_batch_that_cannot_be_read_halts_by_name() -> None:
    header = BatchHeader.read(SPARSE)
    broken = sealed(header._replace(record_count=1).pack() + SPARSE[HEADER_SIZE:])
    run = Run()
    halt = run.take(written(100), broken, written(106))
    assert isinstance(halt, Halt)
    assert halt.reason is HaltReason.NOT_OPENED
    assert "sparse_batch" in halt.detail
    assert run.partition.cursor.due == 103
    assert run.shape == [3]
    run.send_all()


def test_a_damaged_batch_is_not_opened() -> None:
    broken = bytearray(SPARSE)
    broken[-1] ^= 1
    run = Run()
    halt = run.take(written(100), bytes(broken))
    assert isinstance(halt, Halt)
    assert halt.reason is HaltReason.CORRUPT
    assert run.rewriter.opened == {}


def test_without_the_deep_path_it_halts() -> None:
    run = Run(Terms(compacted=True))
    halt = run.take(written(100), SPARSE)
    assert isinstance(halt, Halt)
    assert halt.reason is HaltReason.SPARSE_BATCH


# Inside of a batch.


def test_a_position_inside_of_a_known_batch() -> None:
    run = Run(due=104)
    run.partition.cursor.inside = 103
    batches = [SPARSE, written(106)]
    assert run.take(*batches) is None
    assert run.shape == ["hole of 1", 1, 3]
    assert run.read() == placed(batches, 104)
    assert run.rewriter.opened == {"mid_batch": 1}


@pytest.mark.parametrize("inside", [-1, 102])
def test_a_batch_that_only_seems_to_hold_the_position_halts(inside: int) -> None:
    """No checksum covers base offsets."""
    run = Run(due=104)
    run.partition.cursor.inside = inside
    halt = run.take(SPARSE, written(106))
    assert isinstance(halt, Halt)
    assert halt.reason is HaltReason.MID_BATCH


def test_inside_ends_with_the_batch() -> None:
    run = Run(due=104)
    run.partition.cursor.inside = 103
    run.take(SPARSE)
    assert run.partition.cursor.inside == -1


def test_what_was_dropped_behind_a_piece_is_fetched_again_from_there() -> None:
    """Little is kept behind a hole: the rest is fetched again, and begins in the middle of a batch."""
    holes = cleaned(written(100), [record(100), record(102)])
    run = Run()
    run.take(holes, written(103))
    batches = [holes, written(103)]
    queue = run.partition.queue
    queue.let_go(queue.outbox.popleft())
    queue.acknowledged = 101
    before = run.partition.cursor.generation
    run.pool.budget = 0  # nothing may be kept
    park(run.partition, run.pool)
    assert run.partition.cursor.generation > before
    assert (run.partition.cursor.due, run.partition.cursor.inside) == (102, 100)
    assert run.shape == ["hole of 1"]
    run.pool.budget = 1 << 22
    queue.unpark()
    queue.pop_hole()
    assert run.take(*batches) is None
    found: list[PlacedRecord] = []
    offset = 102
    for item in run.items:
        assert not isinstance(item, Hole)
        header = BatchHeader.read(item.head[-HEADER_SIZE:])._replace(base_offset=offset)
        found += placed_records(header, bytes(item.payload))
        offset = header.next_offset
    assert found == placed(batches, 102)
    run.send_all()


# Any of it.


@given(
    st.lists(st.sampled_from(["plain", "sparse", "appended", "gap", "empty"]), min_size=1, max_size=8),
    st.integers(120, 400),
    st.sampled_from(FORMS),
)
def test_any_mix(kinds: list[str], most: int, compiled: bool) -> None:
    run = Run(Terms(compacted=True, rewrites=True, max_batch_size=most), compiled=compiled)
    batches, offset = [], 100
    for kind in kinds:
        if kind == "gap":
            offset += 4
            continue
        batch = written(offset)
        if kind == "sparse":
            batch = cleaned(batch, [record(offset + 1)])
        elif kind == "appended":
            batch = appended(batch, TIME + 9)
        elif kind == "empty":
            batch = cleaned(batch, [])
        batches.append(batch)
        offset += 3
    batches += [written(offset), written(offset + 3)]
    halt = run.take(*batches)
    assert not isinstance(halt, Halt)
    assert run.read() == placed(batches)[: len(run.read())]
    if halt is None:
        assert run.read() == placed(batches)
    run.send_all()


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize(
    ("limit", "most", "answers"),
    [
        ("MOST_PIECES", 1, 4),
        ("MOST_PIECES", 2, 2),
        ("MOST_PIECES", 3, 2),
        ("MOST_PIECES", 4, 1),
        ("MOST_SIZE", 1, 4),
        ("MOST_SIZE", 100, 2),
    ],
)
def test_more_pieces_than_are_made_at_a_time(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, answers: int, compiled: bool
) -> None:
    """The rest of the batch is fetched again, and what stands behind it."""
    monkeypatch.setattr(deep, limit, most)
    run = Run(due=97, compiled=compiled)
    large = kafka_batch([Record(at, TIME + at, b"k", b"value %d" % at) for at in (0, 2, 3, 5, 8)], base_offset=100)
    batches = [written(97), large, written(109)]
    count = 0
    while run.partition.cursor.due < 112:
        left = [one for one in batches if BatchHeader.read(one).next_offset > run.partition.cursor.due]
        assert run.take(*left) is None
        assert run.partition.cursor.inside == (100 if run.partition.cursor.due < 109 else -1)
        count += 1
    assert count == answers
    assert run.shape == [3, 1, "hole of 1", 2, "hole of 1", 1, "hole of 2", 1, 3]
    assert run.read() == placed(batches)
    assert run.partition.cursor.marks[-1].next_offset == 112
    assert len(run.partition.cursor.rewritten) == 1
    run.send_all()


@pytest.mark.parametrize("compiled", FORMS)
def test_records_that_are_passed_over(compiled: bool) -> None:
    """
    1. Each becomes a hole of its own, also beside another one or beside a gap; all other records keep their places.
    2. Frames go back as their batches do, also of a batch of which nothing is left.
    """
    run = Run(Terms(compacted=True, rewrites=True, passes_over=400, max_batch_size=400), compiled=compiled)
    first = kafka_batch(
        [Record(at, 0, b"k", bytes([97 + at]) * (900 if at in (1, 2, 4) else 50)) for at in range(5)], base_offset=103
    )
    alone = kafka_batch([Record(0, 0, b"k", b"x" * 900)], base_offset=110)
    batches = [written(100), first, alone, written(111)]
    assert run.take(*batches) is None
    assert run.shape == [3, 1, "hole of 1", "hole of 1", 1, "hole of 1", "hole of 2", "hole of 1", 3]
    causes = [one.cause for one in run.items if isinstance(one, Hole)]
    assert [cause.value for cause in causes] == ["oversize", "oversize", "oversize", "compacted", "oversize"]
    left = {104, 105, 107, 110}
    assert run.read() == [one for one in placed(batches) if one.offset not in left]
    assert run.partition.cursor.marks[-1].next_offset == 114
    run.send_all()


def test_without_that_setting_the_first_of_them_halts() -> None:
    run = Run(Terms(rewrites=True, max_batch_size=400))
    batch = kafka_batch([Record(at, 0, b"k", b"x" * (900 if at == 1 else 50)) for at in range(3)], base_offset=100)
    halt = run.take(batch)
    assert isinstance(halt, Halt)
    assert (halt.reason, run.shape) == (HaltReason.TOO_LARGE, [1])
