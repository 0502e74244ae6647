"""The inner loop by itself; what it makes of record sets is in ``test_forward``."""

import shutil
import struct
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.restamp import checksum
from mirror.relay.hot import native
from mirror.relay.hot.native import Outbox, is_compiled, new_outbox
from mirror.relay.hot.plain import NEVER_MS, PLAIN_ATTRIBUTES, SHAPES_MAX, InnerLoop, Shapes, Taken
from tests.records.builders import raw_batch

FORMS = [False, True] if is_compiled() else [False]
MOST = 1 << 31


def take(
    inner_loop: InnerLoop, buf: memoryview, at: int = 0, end: int | None = None, outbox: Outbox | None = None
) -> Taken:
    stop = len(buf) if end is None else end
    into = new_outbox() if outbox is None else outbox
    return Taken(*inner_loop.take(into, buf, at, stop, 0, 3, 1 << 62, 4, 7, MOST, PLAIN_ATTRIBUTES))


def test_it_is_compiled_where_it_can_be() -> None:
    """A machine with a compiler and Python's headers has the compiled form, so the tests here are of both."""
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    assert is_compiled() or not (shutil.which("cc") and headers)


def test_the_form_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.PURE, "1")
    assert not InnerLoop(9).compiled
    monkeypatch.delenv(native.PURE)
    assert InnerLoop(9).compiled is is_compiled()
    monkeypatch.setattr(native, "MODULE", None)
    assert not InnerLoop(9).compiled
    with pytest.raises(RuntimeError, match="was not compiled on installation"):
        InnerLoop(9, compiled=True)


def test_shapes_are_bounded() -> None:
    """Batches of ever new lengths do not fill the memory."""
    shapes = Shapes(9)
    for length in range(49, 49 + 3 * SHAPES_MAX):
        assert shapes[length]
        assert len(shapes) <= SHAPES_MAX


@pytest.mark.parametrize("compiled", FORMS)
@given(st.lists(st.integers(0, 3).map(lambda turns: 100 + 1024 * turns) | st.integers(0, 70_000), max_size=8))
def test_checksums_of_all_sizes_in_a_row(compiled: bool, sizes: list[int]) -> None:
    """What is remembered per length is not taken for that of another."""
    batches = [raw_batch(bytes(size), base_offset=5 * turn) for turn, size in enumerate(sizes)]
    outbox = new_outbox()
    found = take(InnerLoop(9, compiled=compiled), memoryview(b"".join(batches)), outbox=outbox)
    assert found.put == len(outbox) == len(sizes)
    for head, payload, records, _ in outbox:
        stored = head[-HEADER_SIZE:] + bytes(payload)
        assert checksum(stored) == BatchHeader.read(stored).crc
        assert records == 5
    assert found.due == 5 * len(sizes)
    assert found.sequence == 7 + 5 * len(sizes)


@pytest.mark.parametrize("compiled", FORMS)
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=6))
def test_the_oldest_and_the_last_are_told(compiled: bool, times: list[int]) -> None:
    batches = [raw_batch(b"x", base_offset=5 * turn, max_timestamp=at) for turn, at in enumerate(times)]
    found = take(InnerLoop(9, compiled=compiled), memoryview(b"".join(batches)))
    assert found.oldest_ms == min(times, default=NEVER_MS)
    assert found.max_timestamp == (times[-1] if times else -1)


@pytest.mark.parametrize("compiled", FORMS)
def test_offsets_that_leave_no_room_behind_them(compiled: bool) -> None:
    """Both forms stop there, and leave it to those who have the last word."""
    last = (1 << 63) - 1
    batches = b"".join(raw_batch(b"x", base_offset=last - 5 * turn) for turn in (2, 1, 0))
    found = InnerLoop(9, compiled=compiled).take(
        new_outbox(), memoryview(batches), 0, len(batches), last - 10, 3, 1 << 62, 4, 7, MOST, PLAIN_ATTRIBUTES
    )
    assert Taken(*found)[:3] == (2, len(batches) // 3 * 2, last)


@pytest.mark.parametrize("compiled", FORMS)
def test_every_cut(compiled: bool) -> None:
    """Whole batches are taken, of the cut one nothing; the buffer ends where the bytes do."""
    batches = [raw_batch(bytes(20), base_offset=5 * turn) for turn in range(2)]
    whole, size = b"".join(batches), len(batches[0])
    for end in range(len(whole) + 1):
        found = take(InnerLoop(9, compiled=compiled), memoryview(bytearray(whole[:end])))
        assert found.put == end // size
        assert found.at == end - end % size
        assert found.cut is (end % size >= HEADER_SIZE)


@pytest.mark.parametrize("compiled", FORMS)
def test_nothing_is_kept(compiled: bool) -> None:
    """What waits is all that holds the bytes; with it gone, the buffer is free."""
    data = bytearray(b"".join(raw_batch(bytes(100), base_offset=5 * turn) for turn in range(10)))
    body = memoryview(data)
    outbox = new_outbox()
    assert take(InnerLoop(9, compiled=compiled), body, outbox=outbox).put == 10
    with pytest.raises(BufferError):
        data.extend(b"x")
    del outbox
    body.release()
    data.extend(b"x")


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize(("at", "end"), [(-1, None), (0, 200), (-300, 100)])
def test_bytes_outside_of_the_buffer(compiled: bool, at: int, end: int | None) -> None:
    """Never asked for; and never read."""
    body = memoryview(raw_batch(bytes(20)))
    try:
        found = take(InnerLoop(9, compiled=compiled), body, at, end)
    except (ValueError, OverflowError, struct.error):
        return
    assert not compiled
    assert not found.put or found.at <= len(body)


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
def test_what_is_no_number_is_refused() -> None:
    inner_loop = InnerLoop(9, compiled=True)
    for wrong in ("x", 1 << 64):
        with pytest.raises((TypeError, OverflowError)):
            inner_loop.take(new_outbox(), memoryview(b""), wrong, 0, 0, 3, 1, 4, 7, MOST, PLAIN_ATTRIBUTES)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        inner_loop.take([], memoryview(b""), 0, 0, 0, 3, 1, 4, 7, MOST, PLAIN_ATTRIBUTES)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        inner_loop.take(new_outbox(), "text", 0, 0, 0, 3, 1, 4, 7, MOST, PLAIN_ATTRIBUTES)  # type: ignore[arg-type]
