"""As ``test_gaps``, of a log in old formats: bits of the offset of any message, turned over on the source's disk."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pytest

from mirror.legacy import LegacySpan, cut, messages, stand_ins
from mirror.net.buffers import FramePool
from mirror.net.errors import Damaged
from mirror.net.logs.log import Segment
from mirror.net.logs.reading import verified
from mirror.records.admit import Halt, Terms
from mirror.records.content.opening import NotOpened, Record, opened
from mirror.records.header import HEADER_SIZE, PREFIX, PREFIX_SIZE, BatchHeader, Codec, CorruptBatch
from mirror.records.scan import Remainder, measure
from mirror.relay.holes.gaps import Contradiction, Look
from mirror.relay.hot.forward import Unproven, forward
from mirror.relay.hot.plain import InnerLoop
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Hole
from tests.legacy.samples import messages_of, wrapper_of
from tests.relay.stage.disk import LEAST_LENGTH, CannotRead, Disk

LOOP = InnerLoop(9)
MOST_ANSWERS = 200
PER_SEGMENT = 4


class OldDisk(Disk):
    """Its headers are those of magic 0 and 1. Brokers find a message by its own offset, a wrapper's last."""

    def __init__(self, stored: Sequence[bytes], *, per_segment: int = PER_SEGMENT, indexed: bool = False) -> None:
        made = [stand_ins(memoryview(one)).batches[0] for one in stored]
        super().__init__(made, per_segment=per_segment, indexed=indexed)
        # The same, with what the log really has.
        self.spans = [next(cut(memoryview(one))) for one in stored]
        self.records = [
            record
            for one, span in zip(stored, self.spans, strict=True)
            if isinstance(span, LegacySpan)
            for record in messages(memoryview(one), span, most=1 << 20)
        ]
        self.files = []
        self._places, self._index = [], []
        for at, one in enumerate(stored):
            if at % per_segment == 0:
                self.files.append(bytearray())
                self._index.append([])
            self._places.append((len(self.files) - 1, len(self.files[-1])))
            if indexed:
                self._index[-1].append((self.spans[at].last_offset, len(self.files[-1])))
            self.files[-1] += one

    def _search(self, file: bytearray, start: int, offset: int) -> tuple[int, int] | None:
        return next(((at, size) for at, size, _, last in self._headers(file, start) if last >= offset), None)

    def _headers(self, file: bytearray, at: int) -> Iterator[tuple[int, int, int, int]]:
        while at + PREFIX_SIZE + LEAST_LENGTH <= len(file):
            last, length = PREFIX.unpack_from(file, at)
            if length < LEAST_LENGTH:
                raise CannotRead(f"record size {length}")
            if at + PREFIX_SIZE + length > len(file):
                return
            yield at, PREFIX_SIZE + length, last, last
            at += PREFIX_SIZE + length

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """As ``Disk`` does."""
        try:
            batches, next_base = verified(memoryview(self.fetch(offset, max_bytes)), offset, converts=True)
        except CorruptBatch as error:
            raise Damaged("source", str(error)) from error
        if batches and batches[-1][0].next_offset > self.end:
            raise Damaged("source", f"behind the log's end {self.end}")
        return Segment(batches, [], self.end, self.end, 0, next_base)

    @property
    def goes_up(self) -> bool:
        """Whether whoever reads the files from their beginnings meets no offset twice."""
        reached = -1
        for file in self.files:
            view = memoryview(file)
            try:
                for span in cut(view):
                    assert isinstance(span, LegacySpan)
                    for record in messages(view, span, most=1 << 20):
                        if record.offset <= reached:
                            return False
                        reached = record.offset
            except (CorruptBatch, NotOpened):
                return False
        return True


def records_at(offsets: Sequence[int], magic: int = 1) -> list[Record]:
    return [Record(at, at if magic else -1, b"k%d" % at, b"value of %d" % at * 9, ()) for at in offsets]


SPANS = ((0, 5), (5, 4), (9, 6), (15, 3), (18, 2), (20, 9), (29, 1), (30, 4), (34, 5), (39, 2), (41, 3))
GAPS = ((3, 5), (8, 1), (9, 6), (40, 3), (43, 2), (51, 9), (60, 1), (900, 4), (904, 5), (4_000, 2), (4_002, 3))


def _logs(magic: int, spans: Sequence[tuple[int, int]], kind: str) -> list[bytes]:
    log = list[bytes]()
    for at, (base, count) in enumerate(spans):
        made = records_at(range(base, base + count), magic)
        alone = kind == "alone" or (kind == "mixed" and at % 3 == 1)
        log += [messages_of(magic, [one]) for one in made] if alone else [wrapper_of(magic, Codec.GZIP, made)]
    return log


KINDS: dict[str, Callable[[], list[bytes]]] = {
    f"{'compacted' if spans is GAPS else 'plain'}-{magic}-{kind}": partial(_logs, magic, spans, kind)
    for spans in (SPANS, GAPS)
    for magic in (0, 1)
    for kind in ("alone", "wrappers", "mixed")
}


class Copied(NamedTuple):
    out: list[Record]
    due: int
    halted: str


def look(disk: OldDisk, partition: Partition) -> bool:
    """As ``relay.holes.gaps`` does; whether it halts."""
    sees = Look(disk, 0, committed=True)  # type: ignore[arg-type]
    try:
        sees.at(partition.cursor.due).send(None)
    except StopIteration as done:
        partition.cursor.ahead = done.value
        return False
    except (Contradiction, Damaged):
        return True
    raise AssertionError("the model waited")


def mirror(disk: OldDisk, max_bytes: int, *, compacted: bool) -> Copied:
    partition = Partition("t", 0)
    partition.cursor.due = 0
    partition.terms = Terms(compacted=compacted, rewrites=True, converts=True)
    out = list[Record]()
    due = nothing = 0
    for _ in range(MOST_ANSWERS):
        if partition.cursor.due >= disk.end:
            return Copied(out, partition.cursor.due, "")
        try:
            data = disk.fetch(partition.cursor.due, max_bytes)
        except CannotRead:
            return Copied(out, partition.cursor.due, "an error code")
        if not data:
            nothing += 1
            if look(disk, partition):
                return Copied(out, partition.cursor.due, "corrupt")
            if nothing > 1:
                return Copied(out, partition.cursor.due, "stalled")
            continue
        pool = FramePool(budget=len(data), frame_size=len(data))
        frame = pool.take(len(data))
        frame.body[:] = data
        found = forward(frame, 0, len(data), partition, LOOP, (), disk.end)
        while partition.queue.outbox:
            item = partition.queue.outbox.popleft()
            if not isinstance(item, Hole):
                header = BatchHeader.read(item[0][-HEADER_SIZE:])._replace(base_offset=due)
                out += opened(header, bytes(item[1]))
            due += item[2]
        if isinstance(found, Halt):
            return Copied(out, due, found.reason.slug)
        if found is None and measure(frame.body, 0, len(data)) is Remainder.PARTIAL:
            return Copied(out, due, "corrupt")
        if isinstance(found, Unproven) and look(disk, partition):
            return Copied(out, due, "corrupt")
    return Copied(out, partition.cursor.due, "stalled")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_an_undamaged_log_goes_to_its_end(kind: str, max_bytes: int) -> None:
    disk = OldDisk(KINDS[kind]())
    copied = mirror(disk, max_bytes, compacted=kind.startswith("compacted"))
    assert copied == Copied(disk.records, disk.end, "")


REASONS = {"corrupt", "unexplained_gap", "an error code", "not_opened", ""}
LOW_BITS = range(6 * 8, 8 * 8)
"""Of an offset, those that change it by little."""


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
@pytest.mark.parametrize("kind", ["plain-1-wrappers", "compacted-1-wrappers", "compacted-1-mixed", "compacted-0-mixed"])
def test_each_bit_of_an_offset(kind: str, max_bytes: int) -> None:
    """What is copied is right, or no reader of the whole log could tell. A wrapper's header says only where it ends, so
    the one behind a gap may seem to end far in front of the next one."""
    stored = KINDS[kind]()
    wrong = []
    for at in range(len(stored)):
        for bit in LOW_BITS:
            disk = OldDisk(stored)
            disk.flip(at, bit)
            copied = mirror(disk, max_bytes, compacted=kind.startswith("compacted"))
            assert copied.halted in REASONS, (at, bit, copied)
            right = [one for one in disk.records if one.offset < copied.due]
            # Brokers pass over what stands first in its file with an offset that is too low.
            if copied.out != right and not disk.goes_up and at % PER_SEGMENT:
                wrong.append((at, bit, copied.halted, copied.due))
    assert not wrong, f"{len(wrong)}: {wrong[:20]}"


@pytest.mark.parametrize("behind", ["small", "large"])
def test_a_wrapper_behind_a_damaged_one_is_read_whole(behind: str) -> None:
    """It ends behind the damaged offset, and begins before it."""
    count = 20 if behind == "small" else 2_000
    first, second = records_at(range(5)), records_at(range(20, 25))
    stored = [wrapper_of(1, Codec.GZIP, one) for one in (first, second, records_at(range(25, 25 + count)))]
    disk = OldDisk(stored)
    disk.flip(1, 7 * 8 + 5)  # 24 becomes 56 if bit 5 is set: 52 to 56
    assert disk.spans[1].last_offset ^ 32 == 56
    copied = mirror(disk, 1, compacted=True)
    if 25 + count > 57:
        assert (copied.out, copied.due, copied.halted) == (first, 5, "corrupt")
    else:
        assert copied.out == first
        assert copied.halted == "corrupt"
