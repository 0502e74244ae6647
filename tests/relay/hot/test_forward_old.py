"""Record sets that hold messages of magic 0 and 1: what is put into the outbox, and the books that are kept of it."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.legacy import cut, stand_ins
from mirror.reasons import HaltReason
from mirror.records.admit import Halt, Terms
from mirror.records.content.opening import Record, opened
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from mirror.relay.hot import forward as forward_module
from mirror.relay.hot.deep import Rewriter
from mirror.relay.hot.forward import Unproven
from mirror.relay.partition.cursor import Ahead
from mirror.relay.partition.queue import Hole
from tests.legacy.samples import messages_of, patched, records_from, wrapper_of
from tests.records.builders import kafka_batch
from tests.relay.hot.test_deep import FORMS, Run

DENSE = Terms(rewrites=True, converts=True)
OLD = messages_of(1, records_from(100, 4)) + wrapper_of(1, Codec.GZIP, records_from(104, 4))
NEW = kafka_batch(base_offset=108, leader_epoch=3)
NEW_COUNT = BatchHeader.read(NEW).record_count
CORRUPT, NOT_OPENED, OLD_FORMAT = HaltReason.CORRUPT, HaltReason.NOT_OPENED, HaltReason.OLD_FORMAT


def read(run: Run) -> list[Record]:
    """The records of what waits, as they are stored at the destination."""
    offset, found = run.partition.queue.acknowledged, list[Record]()
    for item in run.items:
        if not isinstance(item, Hole):
            header = BatchHeader.read(item.head[-HEADER_SIZE:])._replace(base_offset=offset)
            found += opened(header, bytes(item.payload))
        offset += item.records
    assert offset == run.partition.cursor.due
    return found


def reason(found: Halt | Unproven | None) -> HaltReason | None:
    assert found is None or isinstance(found, Halt)
    return None if found is None else found.reason


@pytest.mark.parametrize("compiled", FORMS)
def test_old_messages_before_and_behind_new_batches(compiled: bool) -> None:
    run = Run(DENSE, compiled=compiled)
    later = messages_of(0, records_from(108 + NEW_COUNT, 3, magic=0))
    assert run.take(OLD, NEW, later) is None
    assert run.shape == [4, 4, NEW_COUNT, 3]
    assert read(run)[:8] == records_from(100, 4) + records_from(104, 4)
    assert run.rewriter.opened == {"old_format": 3}
    assert run.partition.cursor.last_epoch == -1
    assert run.partition.cursor.aligned


def test_every_batch_of_an_answer_has_a_frame() -> None:
    """Each part has its own; all go back once all is acknowledged."""
    run = Run(DENSE)
    run.take(NEW.replace(NEW[:8], (100).to_bytes(8), 1), OLD_BEHIND, kafka_batch(base_offset=116))
    frames = [item.frame for item in run.items if item.frame is not None]
    assert len(frames) == 3
    assert run.partition.queue.frames == 3
    for frame in frames:
        frame.release()
    assert run.pool.used == 0


OLD_BEHIND = messages_of(1, records_from(100 + NEW_COUNT, 116 - 100 - NEW_COUNT))


@pytest.mark.parametrize("size", range(len(OLD) + 1))
def test_an_answer_that_is_cut_anywhere(size: int) -> None:
    """What is whole is put. The rest is fetched again, from the offset behind it."""
    run = Run(DENSE)
    assert run.take(OLD[:size]) is None
    due = run.partition.cursor.due
    whole = [span.last_offset for span in cut(memoryview(OLD[:size]))]
    assert due == (whole[-1] + 1 if whole else 100)
    assert (
        run.take(*(OLD[span.at : span.at + span.size] for span in cut(memoryview(OLD)) if span.last_offset >= due))
        is None
    )
    assert read(run) == records_from(100, 4) + records_from(104, 4)


def test_messages_from_before_the_offset_asked_for() -> None:
    """A broker may begin its answer with them."""
    run = Run(DENSE, due=102)
    assert run.take(OLD) is None
    assert run.shape == [2, 4]
    assert read(run) == records_from(100, 4)[2:] + records_from(104, 4)


def test_behind_new_batches_they_are_out_of_order() -> None:
    run = Run(DENSE, due=108)
    assert reason(run.take(NEW, messages_of(1, records_from(108, 2)))) is CORRUPT
    assert run.shape == [NEW_COUNT]


def test_a_position_inside_of_a_wrapper() -> None:
    """It is trimmed only if it is known to be the one: no checksum covers offsets."""
    run = Run(DENSE, due=106)
    assert reason(run.take(OLD)) is HaltReason.MID_BATCH
    run.partition.cursor.inside = 104
    assert run.take(OLD) is None
    assert read(run) == records_from(104, 4)[2:]


def test_holes_in_a_wrapper_and_between_messages() -> None:
    """They are filled on a compacted topic; the gap behind which the answer ends has to be looked at."""
    run = Run(Terms(rewrites=True, converts=True, compacted=True))
    records = records_from(100, 3, step=2)
    found = run.take(wrapper_of(1, Codec.LZ4, records), messages_of(1, records_from(107, 3, step=3)))
    assert found == Unproven(111, 113)
    assert run.shape == [1, "hole of 1", 1, "hole of 1", 1, "hole of 2", 1, "hole of 2", 1]
    run.partition.cursor.expect(Ahead(111, 113, proven=True))
    assert run.take(messages_of(1, records_from(113, 2))) is None
    assert run.shape[-3:] == [1, "hole of 2", 2]
    assert [one.offset for one in read(run)] == [100, 102, 104, 107, 110, 113, 114]


def test_a_gap_that_has_no_cause_halts() -> None:
    run = Run(DENSE)
    found = run.take(*(messages_of(1, records_from(first, 2)) for first in (100, 104, 107)))
    assert reason(found) is HaltReason.UNEXPLAINED_GAP
    assert run.shape == [2]


@pytest.mark.parametrize("bit", range(8 * 26))
def test_a_flipped_bit_is_never_copied(bit: int) -> None:
    """In the header of a message in the middle; of its offset, no checksum says anything, so it has to stand right."""
    run = Run(DENSE)
    messages = [messages_of(1, [one]) for one in records_from(100, 4)]
    damaged = bytearray(messages[2])
    damaged[bit // 8] ^= 1 << bit % 8
    run.take(*messages[:2], bytes(damaged), messages[3])
    assert read(run) == records_from(100, 4)[:2]


def test_what_cannot_be_opened() -> None:
    run = Run(DENSE)
    odd = wrapper_of(1, Codec.GZIP, records_from(102, 2))
    unknown = messages_of(1, records_from(100, 2)) + _with_attributes(odd, 0x40)
    assert reason(run.take(unknown)) is NOT_OPENED
    assert run.shape == [2]


def _with_attributes(message: bytes, attributes: int) -> bytes:
    return patched(message, int.from_bytes(message[:8]), message[17] | attributes)


def test_without_the_deep_path_they_halt() -> None:
    for terms in (Terms(), Terms(strict=True)):
        run = Run(terms)
        assert reason(run.take(OLD)) is OLD_FORMAT
        assert run.shape == []


def test_wrappers_that_are_too_large_are_cut() -> None:
    run = Run(Terms(rewrites=True, converts=True, max_batch_size=200))
    assert run.take(OLD) is None
    assert len(run.shape) > 2
    assert read(run) == records_from(100, 4) + records_from(104, 4)
    assert all(isinstance(item, Hole) or len(item.payload) + HEADER_SIZE <= 200 for item in run.items)


def test_what_is_dropped_and_fetched_again_is_known() -> None:
    """``due`` may come to lie inside of a wrapper again; and who reads back knows that the batch was made here."""
    run = Run(Terms(rewrites=True, converts=True, max_batch_size=200))
    run.take(OLD)
    cursor = run.partition.cursor
    assert all(cursor.is_rewritten(offset) for offset in range(100, 108))
    cursor.rewind(106, cursor.identity, None)
    assert cursor.inside == 104
    assert not cursor.is_rewritten(108)


def test_the_mark_says_what_the_last_message_is() -> None:
    """However many were gathered with it."""
    run = Run(DENSE)
    run.take(OLD[: len(OLD) - len(wrapper_of(1, Codec.GZIP, records_from(104, 4)))])
    alone = stand_ins(memoryview(messages_of(1, records_from(100, 4)[3:]))).batches[0]
    (mark,) = run.partition.cursor.marks
    assert mark.next_offset == 104
    assert BatchHeader.read(mark.header)[9:12] == BatchHeader.read(alone)[9:12]


@given(st.data())
def test_any_log(data: st.DataObject) -> None:
    """Fetched in any pieces, all records are put, at their offsets, once."""
    offset, log, records = 100, list[bytes](), list[Record]()
    for _ in range(data.draw(st.integers(1, 6))):
        count, kind = data.draw(st.integers(1, 5)), data.draw(st.sampled_from(["new", "alone", "gzip", "lz4"]))
        magic = data.draw(st.sampled_from([0, 1]))
        made = records_from(offset, count, magic=magic)
        if kind == "new":
            batch = kafka_batch(base_offset=offset)
            log.append(batch)
            made = list(opened(BatchHeader.read(batch), batch[HEADER_SIZE:]))
        elif kind == "alone":
            log += [messages_of(magic, [one]) for one in made]
        else:
            log.append(wrapper_of(magic, Codec.GZIP if kind == "gzip" else Codec.LZ4, made))
        records += made
        offset = made[-1].offset + 1
    run = Run(DENSE, compiled=data.draw(st.sampled_from(FORMS)))
    run.rewriter = Rewriter()
    whole = b"".join(log)
    spans = list(cut(memoryview(whole)))
    while (due := run.partition.cursor.due) < offset:
        at = next(span.at for span in spans if span.last_offset >= due)
        first = next(span.size for span in spans if span.at == at)
        end = data.draw(st.integers(at + first, len(whole)))
        assert run.take(whole[at:end]) is None
        assert run.partition.cursor.due > due
    assert read(run) == records


def test_other_partitions_have_their_turn() -> None:
    """Many messages are not converted all at once: the rest is fetched again."""
    run = Run(DENSE)
    with patch.object(forward_module, "AT_A_TIME", 3):
        assert run.take(OLD) is None
        assert (run.partition.cursor.due, run.shape) == (103, [3])
        assert run.partition.cursor.aligned
        assert run.take(OLD) is None
        assert run.shape == [3, 1, 4]
    assert read(run) == records_from(100, 4) + records_from(104, 4)
