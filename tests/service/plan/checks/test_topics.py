"""The checks of a topic on both sides, each by itself."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mirror.foretold import Line
from mirror.reasons import HaltReason
from mirror.records.admit import Terms
from mirror.records.header import Codec
from mirror.relay.halts import Halted
from mirror.relay.topics.limits import AFTER, MAX_MESSAGE_BYTES, Narrower
from mirror.service.plan.checks import topics
from mirror.service.plan.model import FlowFacts, Level, PlanFinding, TopicFacts
from tests.service.plan.facts import flow, topic

Check = Callable[[FlowFacts, TopicFacts], Iterator[PlanFinding]]
NEW: dict[str, Any] = {"exists": False, "created": True, "partitions_there": 0}


def test_all_is_well() -> None:
    for check in topics.CHECKS:
        assert list(check(flow(), topic())) == []


@pytest.mark.parametrize(
    ("check", "changes", "line", "level", "told"),
    [
        (topics.creation, NEW, Line.CREATION, Level.TOLD, "partitions: 1, replicas: 3"),
        (topics.creation, NEW | {"replicas": -1}, Line.CREATION, Level.TOLD, "replicas: the cluster's default"),
        (topics.creation, NEW | {"refusal": Halted.of(HaltReason.CREATE_FAILED, "no")}, Line.CREATION, Level.REFUSED,
         "no"),
        (topics.creation, NEW | {"refusal": Halted.of(HaltReason.AUTHORIZATION, "no")}, Line.RIGHTS, Level.REFUSED,
         "no"),
        (topics.creation, NEW | {"uncertain": "busy"}, Line.CREATION, Level.UNKNOWN, "busy"),
        (topics.partitions, {"partitions": 3, "partitions_there": 1, "grown": True}, Line.PARTITIONS, Level.TOLD,
         "2 partitions are added"),
        (topics.partitions, {"partitions": 1, "partitions_there": 3}, Line.PARTITIONS, Level.WARNS, "stay empty"),
        (topics.batch_size, {"pair": {"narrower": (Narrower(MAX_MESSAGE_BYTES, 5, 9),)}}, Line.BATCH_SIZE, Level.WARNS,
         "takes batches of 5 bytes"),
        (topics.timestamps, {"pair": {"narrower": (Narrower(AFTER, 5, 9),)}}, Line.TIMESTAMPS, Level.WARNS,
         f"{AFTER}=5"),
        (topics.append_times, {"terms": Terms(takes_append_times=True, append_times_there=True)}, Line.REWRITES,
         Level.WARNS, "destination.timestamps: append"),
        (topics.null_keys, {"terms": Terms(compacted_there=True)}, Line.NULL_KEYS, Level.WARNS, "is compacted"),
        (topics.replicas, NEW | {"replicas": 1, "there": {"min.insync.replicas": "2"}}, Line.REPLICAS, Level.WARNS,
         "nothing can be written"),
    ],
)  # fmt: skip
def test_each(check: Check, changes: dict[str, Any], line: Line, level: Level, told: str) -> None:
    (found,) = check(flow(), topic(**changes))
    assert (found.line, found.level) == (line, level)
    assert told in found.detail
    assert found.remedy or level is Level.TOLD


def test_a_codec_on_purpose() -> None:
    """What it costs is told; that the destination does not know it is refused."""
    wants = topic(terms=Terms(codec=Codec.ZSTD))
    (told,) = topics.codec(flow(relay={"compression": "zstd"}), wants)
    assert (told.line, told.level) == (Line.REWRITES, Level.TOLD)
    assert "each batch of t that is not zstd is opened" in told.detail
    old = flow(there={"apis": {0: 6}}, relay={"compression": "zstd"})
    assert [(one.line, one.reason) for one in topics.codec(old, wants)][1:] == [(Line.CODEC, "unsupported_codec")]
    assert len(list(topics.codec(old, topic(terms=Terms(codec=Codec.LZ4))))) == 1


def test_larger_batches() -> None:
    (told,) = topics.rebatches(flow(), topic(terms=Terms(rebatches=1024)))
    assert (told.line, told.level) == (Line.REWRITES, Level.TOLD)
    assert "of less than 1024 bytes become larger ones" in told.detail
    assert not list(topics.rebatches(flow(), topic()))


def test_limits_are_told_apart() -> None:
    """A limit of sizes is none of timestamps, and the other way round."""
    narrow = topic(pair={"narrower": (Narrower(AFTER, 5, 9), Narrower(MAX_MESSAGE_BYTES, 5, 9))})
    assert len(list(topics.batch_size(flow(), narrow))) == len(list(topics.timestamps(flow(), narrow))) == 1


def test_what_is_right() -> None:
    """Compacted on both sides; more partitions with offsets: mapped; enough replicas."""
    assert not list(topics.null_keys(flow(), topic(terms=Terms(compacted=True, compacted_there=True))))
    assert not list(topics.partitions(flow(relay={"mapped": True}), topic(partitions_there=3)))
    assert not list(topics.replicas(flow(), topic(**NEW, there={"min.insync.replicas": "2"})))
