"""``mirror.records.admit``: each verdict, and which of two faults a batch is named by."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.reasons import HaltReason
from mirror.records.admit import Cause, Fill, Forward, Halt, Rewrite, RewriteWish, Skip, Terms, Verdict, admit
from mirror.records.header import BatchHeader, Codec
from tests.records.builders import RECORDS, header_of, kafka_batch
from tests.records.test_header import FIELDS

DUE = 1_000
TERMS = Terms(max_batch_size=200)


def reason(verdict: Verdict) -> HaltReason:
    assert isinstance(verdict, Halt)
    return verdict.reason


# Gravest first: each row is one fault, as changes to a good batch of offsets 1000 to 1004.
FAULTS: tuple[tuple[HaltReason, dict[str, int]], ...] = (
    (HaltReason.OLD_FORMAT, {"magic": 1}),
    (HaltReason.CORRUPT, {"record_count": -1}),
    (HaltReason.UNKNOWN_ATTRIBUTES, {"attributes": 0x0080}),
    (HaltReason.UNEXPLAINED_GAP, {"base_offset": 1_001}),
    (HaltReason.MID_BATCH, {"base_offset": 998}),
    (HaltReason.SPARSE_BATCH, {"record_count": 4}),
    (HaltReason.LOG_APPEND_TIME, {"attributes": 0x0008}),
    (HaltReason.TOO_LARGE, {"length": 1_000}),
)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_good_batch_is_forwarded_as_it_is(codec: Codec) -> None:
    header = BatchHeader.read(
        kafka_batch(codec=codec, base_offset=DUE, producer_id=4, producer_epoch=0, base_sequence=9)
    )
    assert admit(header, DUE, Terms()) == Forward(attributes=codec)
    assert admit(header, DUE, Terms(max_batch_size=header.size)) == Forward(attributes=codec)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("wanted", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_codec_on_purpose(codec: Codec, wanted: Codec) -> None:
    """What has it goes as it is. Whatever else speaks against a batch comes first; what has no record is a hole."""
    terms = Terms(codec=wanted, rewrites=True)
    header = header_of(attributes=codec)
    forwarded = Forward(attributes=codec)
    assert admit(header, DUE, terms) == (forwarded if codec is wanted else Rewrite(reason=RewriteWish.OTHER_CODEC))
    sparse = header_of(attributes=codec, record_count=4)
    assert admit(sparse, DUE, terms) == Rewrite(reason=HaltReason.SPARSE_BATCH)
    assert isinstance(admit(header, DUE, terms, aborted=True), Fill)
    assert RewriteWish.OTHER_CODEC.slug == "other_codec"


def test_the_delete_horizon_bit_is_cleared() -> None:
    assert admit(header_of(attributes=0x40 | Codec.ZSTD), DUE, TERMS) == Forward(attributes=Codec.ZSTD)


def test_the_transactional_bit_is_cleared() -> None:
    """What a read_committed consumer finds is decided; the mirror writes outside of any transaction."""
    assert admit(header_of(attributes=0x10 | Codec.LZ4), DUE, TERMS) == Forward(attributes=Codec.LZ4)


@pytest.mark.parametrize("base_offset", [DUE, DUE - 3], ids=["whole", "rest"])
@pytest.mark.parametrize(
    ("changes", "aborted", "cause"),
    [
        ({"attributes": 0x30}, False, Cause.MARKER),
        ({"attributes": 0x20}, False, Cause.MARKER),
        ({"attributes": 0x10}, True, Cause.ABORTED),
        ({"attributes": 0x10, "record_count": 3}, True, Cause.ABORTED),
        ({"record_count": 0}, False, Cause.COMPACTED),
    ],
)
def test_where_a_consumer_finds_nothing_is_filled(
    changes: dict[str, int], aborted: bool, cause: Cause, base_offset: int
) -> None:
    """Also the rest of it, where filling was interrupted in the middle."""
    header = header_of(**changes, base_offset=base_offset)
    assert admit(header, DUE, TERMS, aborted=aborted) == Fill(until=header.next_offset, cause=cause)


@pytest.mark.parametrize(
    ("terms", "attributes", "cause"),
    [
        (Terms(compacted=True), 0, Cause.COMPACTED),
        (Terms(compacted=True), 0x10, Cause.COMPACTED),
        (Terms(accept_gaps=True), 0, Cause.ACCEPTED),
        (Terms(compacted=True, accept_gaps=True), 0, Cause.COMPACTED),
    ],
)
def test_a_gap_with_a_cause_is_filled_up_to_the_batch(terms: Terms, attributes: int, cause: Cause) -> None:
    header = header_of(base_offset=DUE + 7, attributes=attributes)
    assert admit(header, DUE, terms) == Fill(until=DUE + 7, cause=cause)


@pytest.mark.parametrize("attributes", [0x10, 0x30])
@pytest.mark.parametrize("aborted", [False, True])
def test_transactions_do_not_explain_a_gap(attributes: int, aborted: bool) -> None:
    """Every offset of a transaction has its batch: data, aborted data, markers."""
    header = header_of(base_offset=DUE + 1, attributes=attributes)
    assert reason(admit(header, DUE, TERMS, aborted=aborted)) is HaltReason.UNEXPLAINED_GAP


@pytest.mark.parametrize(("expected", "changes"), FAULTS, ids=[fault.slug for fault, _ in FAULTS])
def test_each_fault_halts_with_its_reason(expected: HaltReason, changes: dict[str, int]) -> None:
    assert reason(admit(header_of(**changes), DUE, TERMS)) is expected


@pytest.mark.parametrize(
    "changes", [{"attributes": 0x10}, {"attributes": 0x30}, {"record_count": 0}, {"base_offset": 1_002}]
)
def test_strict_fills_nothing(changes: dict[str, int]) -> None:
    """Bit for bit: neither the transactional bit is cleared nor a hole filled."""
    assert reason(admit(header_of(**changes), DUE, Terms(strict=True, compacted=True))) is HaltReason.NOT_STRICT
    assert isinstance(admit(header_of(), DUE, Terms(strict=True)), Forward)


@pytest.mark.parametrize(
    ("first", "second"),
    [(one, other) for one, other in combinations(FAULTS, 2) if "base_offset" not in one[1].keys() & other[1].keys()],
    ids=lambda fault: fault[0].slug,
)
def test_of_two_faults_the_graver_names_the_batch(
    first: tuple[HaltReason, dict[str, int]], second: tuple[HaltReason, dict[str, int]]
) -> None:
    changes = {**first[1], **second[1]}
    if {"attributes"} == first[1].keys() & second[1].keys():
        changes["attributes"] = first[1]["attributes"] | second[1]["attributes"]
    if first[0] is HaltReason.CORRUPT:
        changes["record_count"] = first[1]["record_count"]
    assert reason(admit(header_of(**changes), DUE, TERMS)) is first[0]


@pytest.mark.parametrize("magic", [-128, -1, 0, 1, 3, 127])
def test_any_other_magic_is_an_old_format_even_before_the_due_offset(magic: int) -> None:
    assert reason(admit(header_of(magic=magic, base_offset=0), DUE, TERMS)) is HaltReason.OLD_FORMAT


@pytest.mark.parametrize(
    "changes",
    [
        {"last_offset_delta": -1},
        {"last_offset_delta": -(1 << 31), "record_count": 0},
        {"record_count": -1},
        {"record_count": 6},
        {"record_count": (1 << 31) - 1},
    ],
    ids=str,
)
def test_counts_that_cannot_be_are_corrupt_even_before_the_due_offset(changes: dict[str, int]) -> None:
    assert reason(admit(header_of(base_offset=0, **changes), DUE, TERMS)) is HaltReason.CORRUPT


@pytest.mark.parametrize(
    "changes", [{}, {"attributes": 0x20}, {"attributes": 0x7FFF}, {"record_count": 0}, {"length": 999}]
)
@pytest.mark.parametrize("base_offset", [0, 995])
def test_what_was_copied_before_is_skipped_whatever_it_is(base_offset: int, changes: dict[str, int]) -> None:
    assert admit(header_of(base_offset=base_offset, **changes), DUE, TERMS) == Skip()


@pytest.mark.parametrize("base_offset", range(996, 1_000))
def test_a_batch_that_the_destination_has_in_part_halts(base_offset: int) -> None:
    verdict = admit(header_of(base_offset=base_offset), DUE, TERMS)
    assert verdict == Halt(
        reason=HaltReason.MID_BATCH,
        detail=f"offset 1000 is due, the batch has offsets {base_offset} to {base_offset + 4}",
    )


@pytest.mark.parametrize("attributes", [0x05, 0x06, 0x07, 0x80, 0x4000, -0x8000, -1])
def test_unassigned_attribute_bits_and_codecs_halt(attributes: int) -> None:
    assert reason(admit(header_of(attributes=attributes), DUE, TERMS)) is HaltReason.UNKNOWN_ATTRIBUTES


@pytest.mark.parametrize("record_count", range(1, 5))
def test_a_batch_with_holes_is_sparse(record_count: int) -> None:
    assert reason(admit(header_of(record_count=record_count), DUE, TERMS)) is HaltReason.SPARSE_BATCH


def test_the_limit_counts_the_whole_batch_and_includes_itself() -> None:
    header = BatchHeader.read(kafka_batch(RECORDS, base_offset=DUE))
    assert isinstance(admit(header, DUE, Terms(max_batch_size=header.size)), Forward)
    verdict = admit(header, DUE, Terms(max_batch_size=header.size - 1))
    assert reason(verdict) is HaltReason.TOO_LARGE
    assert isinstance(verdict, Halt)
    assert f"{header.size} bytes" in verdict.detail
    assert f"takes {header.size - 1}" in verdict.detail


@given(fields=FIELDS, due=st.integers(0, (1 << 63) - 1), limit=st.none() | st.integers(0, 1 << 31))
def test_any_header_gets_a_verdict_and_only_a_good_one_is_forwarded(
    fields: tuple[int, ...], due: int, limit: int | None
) -> None:
    check_verdict(BatchHeader(*fields), due, limit)


@given(
    attributes=st.integers(0, 0xFF),
    delta=st.integers(-1, 6),
    count=st.integers(-1, 7),
    base=st.integers(990, 1_005),
    limit=st.none() | st.integers(0, 200),
)
def test_any_likely_header_gets_a_verdict(
    attributes: int, delta: int, count: int, base: int, limit: int | None
) -> None:
    header = header_of(attributes=attributes, last_offset_delta=delta, record_count=count, base_offset=base)
    check_verdict(header, DUE, limit)


def check_verdict(header: BatchHeader, due: int, limit: int | None) -> None:
    verdict = admit(header, due, Terms(max_batch_size=limit))
    good = (
        header.magic == 2
        and header.base_offset == due
        and header.record_count == header.last_offset_delta + 1 > 0
        and header.attributes & ~0x47 == 0
        and header.attributes & 7 <= 4
        and (limit is None or header.size <= limit)
    )
    assert isinstance(verdict, Forward) == good
    match verdict:
        case Forward():
            assert verdict.attributes == header.attributes & 7
        case Skip():
            assert header.last_offset < due
        case Halt():
            assert verdict.detail
