"""Which refusals halt a partition, and what the halt is called.

What follows: ``tests/relay/sending/test_sink_answers.py``.
"""

from dataclasses import replace

import pytest

from mirror.records.header import HEADER_SIZE
from mirror.relay.hot.refusals import TRIES, why_halt
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Batch, SentPayload
from mirror.wire.errors import ErrorCode
from mirror.wire.produce import Produced
from tests.relay.stage.flows import batch, copies


def refused(
    code: int, *, doubts: int = 0, sequence: int = 3, damaged: bool = False, sent: bool = False, strict: bool = False
) -> str:
    """The reason to halt; empty: it is looked for again."""
    partition = Partition("t", 0)
    partition.judge_by(replace(partition.terms, strict=strict))
    for _ in range(doubts):
        partition.claim.doubt()
    (one,) = copies([batch(3)], cluster_id="c", sequence=sequence)
    records = memoryview(one[HEADER_SIZE:-1] + bytes([one[-1] ^ damaged]))
    payload = SentPayload(len(records)) if sent else records
    partition.queue.in_flight.append(Batch(b"head of the request" + one[:HEADER_SIZE], payload, 3, None))  # type: ignore[arg-type]
    found = why_halt(partition.queue, Produced("t", 0, code, -1, -1, 0, None, None), "east")
    if found is not None and found.reason != "strict_refused":
        assert "east refused the batch" in found.detail or found.lacks is not None, found
    return "" if found is None else found.reason


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_what_heals_by_itself(code: ErrorCode) -> None:
    assert refused(code, doubts=TRIES) == ""


def test_a_batch_that_is_too_large() -> None:
    assert refused(ErrorCode.MESSAGE_TOO_LARGE) == "too_large"


def test_a_wrong_checksum_is_the_source_s() -> None:
    """Whatever the broker calls it. Of a batch whose records are not here any more, nothing is known."""
    for code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR):
        assert refused(code, damaged=True) == "corrupt"
        assert refused(code, damaged=True, sent=True) == ""


def test_what_was_damaged_on_its_way_is_sent_again() -> None:
    """Unless that happens each time."""
    assert refused(ErrorCode.CORRUPT_MESSAGE) == ""
    assert refused(ErrorCode.CORRUPT_MESSAGE, doubts=TRIES) == "refused"


def test_a_producer_that_no_broker_takes() -> None:
    """A broker need not know the producer of the first batch of an epoch."""
    assert refused(ErrorCode.UNKNOWN_PRODUCER_ID, doubts=TRIES) == ""
    assert refused(ErrorCode.UNKNOWN_PRODUCER_ID, sequence=0) == ""
    assert refused(ErrorCode.UNKNOWN_PRODUCER_ID, doubts=TRIES, sequence=0) == "producer_ids_refused"


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_sequences_of_others(code: ErrorCode) -> None:
    """With ``identity: strict`` they are the source's, and it is tried three times."""
    assert refused(code, doubts=TRIES) == ""
    assert refused(code, strict=True) == ""
    assert refused(code, doubts=TRIES, strict=True) == "strict_refused"
