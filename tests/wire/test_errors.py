"""``mirror.wire.errors``: names as Kafka has them, and one outcome for every code."""

import pytest
from hypothesis import given
from kafka import errors as theirs

from mirror.wire.errors import HALTING, ErrorCode, Reaction, error_name, error_slug, outcome_of
from tests.wire.frames import I16

NAMES = {error.errno: error.message for error in vars(theirs).values() if getattr(error, "errno", None) is not None}
"""Names by code, as kafka-python has them."""
SPELT_OTHERWISE = {
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NO_ERROR": "NONE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}
"""kafka-python's name -> that of Apache Kafka's Errors.java, which ours follow."""


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_codes_are_kafkas(code: ErrorCode) -> None:
    if code in NAMES:
        assert code.name == SPELT_OTHERWISE.get(NAMES[code], NAMES[code])
    assert error_name(code) == f"{code.name} ({int(code)})"
    assert error_slug(code) == code.name.lower()


def test_most_codes_were_compared() -> None:
    assert len([code for code in ErrorCode if code in NAMES]) > 40


@pytest.mark.parametrize("code", [-2, 11, 999])
def test_a_code_that_is_not_in_the_table_has_a_name_all_the_same(code: int) -> None:
    assert error_name(code) == f"error code {code}"
    assert error_slug(code) == f"error_{code}"


@given(code=I16)
def test_every_code_has_one_outcome(code: int) -> None:
    assert (outcome_of(code) is Reaction.HALT) == (code in HALTING)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, Reaction.LOOK_AGAIN),
        (ErrorCode.REQUEST_TIMED_OUT, Reaction.LOOK_AGAIN),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Reaction.LOOK_AGAIN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Reaction.LOOK_AGAIN),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Reaction.LOOK_AGAIN),
        (ErrorCode.UNKNOWN_PRODUCER_ID, Reaction.LOOK_AGAIN),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Reaction.LOOK_AGAIN),
        (12_345, Reaction.LOOK_AGAIN),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Reaction.FIND_LEADER),
        (ErrorCode.FENCED_LEADER_EPOCH, Reaction.FIND_LEADER),
        (ErrorCode.UNKNOWN_TOPIC_ID, Reaction.FIND_LEADER),
        (ErrorCode.CORRUPT_MESSAGE, Reaction.HALT),
        (ErrorCode.MESSAGE_TOO_LARGE, Reaction.HALT),
        (ErrorCode.INVALID_RECORD, Reaction.HALT),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Reaction.HALT),
    ],
)
def test_outcomes_that_copying_relies_on(code: int, outcome: Reaction) -> None:
    assert outcome_of(code) is outcome
