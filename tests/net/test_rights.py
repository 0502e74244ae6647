"""Rights by the names of Kafka's tools, and what answers say of them. Real ones: ``tests/service/runs/test_rights``."""

import pytest

from mirror.net.errors import Refused
from mirror.net.rights import ALTER, CLUSTER, CLUSTER_ACTION, DESCRIBE, READ, TOPIC, WRITE, Right, granted
from mirror.wire.errors import ErrorCode


def test_named() -> None:
    """With resource and cluster, and the remedy."""
    assert str(Right(READ, TOPIC, "orders", "west")) == "Read on topic orders of cluster west"
    assert str(Right(ALTER, CLUSTER, "", "east")) == "Alter on cluster east"
    assert Right(ALTER, CLUSTER, "", "east").grant == "grant the mirror's principal Alter on cluster east"


def test_in_an_error() -> None:
    """Only of those codes that say that a right is missing."""
    right = Right(READ, TOPIC, "orders", "west")
    denied = Refused("west: Fetch of orders-0 at 7", ErrorCode.TOPIC_AUTHORIZATION_FAILED, needs=right)
    assert denied.lacks == right
    assert str(denied).endswith("(29); the mirror's principal lacks Read on topic orders of cluster west: grant it")
    other = Refused("west: Fetch of orders-0 at 7", ErrorCode.NOT_LEADER_OR_FOLLOWER, needs=right)
    assert other.lacks is None
    assert "lacks" not in str(other)


@pytest.mark.parametrize(
    ("told", "operations", "there"),
    [
        ({3, 8}, (READ,), True),
        ({3, 8}, (WRITE,), False),
        ({3, 8}, (WRITE, DESCRIBE), True),
        ({9}, (ALTER, CLUSTER_ACTION), True),
        ((), (READ,), False),
        (None, (READ,), None),
    ],
)
def test_as_answers_have_them(told: set[int] | None, operations: tuple[str, ...], there: bool | None) -> None:
    """By the codes of AclOperation. A broker that does not say is no broker that denies."""
    assert granted(told, operations) is there
