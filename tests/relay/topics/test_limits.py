"""What a destination topic refuses and its source takes: taken over by new topics, and told of those that exist."""

from typing import Any
from unittest.mock import patch

import pytest

from mirror.relay.settings import TIMESTAMP_TYPE
from mirror.relay.topics import creating
from mirror.relay.topics.limits import (
    AFTER,
    BEFORE,
    DIFFERENCE,
    MAX_MESSAGE_BYTES,
    NO_LIMIT,
    Narrower,
    Values,
    limit_of,
    narrower,
    taken_over,
)
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import clusters, mirroring

HOUR, DAY = "3600000", "86400000"
NEVER = str(NO_LIMIT)
KAFKA_2 = {DIFFERENCE: NEVER}
KAFKA_3 = {AFTER: NEVER, BEFORE: NEVER, DIFFERENCE: NEVER}
KAFKA_4 = {AFTER: HOUR, BEFORE: NEVER}


@pytest.mark.parametrize(
    ("values", "name", "limit"),
    [
        ({}, AFTER, None),
        (KAFKA_2, AFTER, NO_LIMIT),
        (KAFKA_3 | {DIFFERENCE: DAY}, BEFORE, int(DAY)),
        (KAFKA_3 | {DIFFERENCE: DAY, AFTER: HOUR}, AFTER, int(HOUR)),
        (KAFKA_3 | {DIFFERENCE: DAY, AFTER: HOUR}, BEFORE, int(DAY)),
        (KAFKA_4, AFTER, int(HOUR)),
        (KAFKA_4 | {TIMESTAMP_TYPE: "LogAppendTime"}, AFTER, NO_LIMIT),
        (KAFKA_3 | {DIFFERENCE: DAY, TIMESTAMP_TYPE: "LogAppendTime"}, BEFORE, NO_LIMIT),
        ({MAX_MESSAGE_BYTES: "100", DIFFERENCE: "5"}, MAX_MESSAGE_BYTES, 100),
    ],
)
def test_what_is_in_force(values: Values, name: str, limit: int | None) -> None:
    """The older config counts where the newer one is not known, or has no limit."""
    assert limit_of(values, name) == limit


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        (KAFKA_4, KAFKA_4, []),
        (KAFKA_4, KAFKA_2, []),
        (KAFKA_2, KAFKA_4, [Narrower(AFTER, int(HOUR), NO_LIMIT)]),
        (KAFKA_4 | {AFTER: DAY}, KAFKA_4, [Narrower(AFTER, int(HOUR), int(DAY))]),
        # As old as it may be at the source, it is older when it is copied.
        (KAFKA_4 | {BEFORE: DAY}, KAFKA_4 | {BEFORE: DAY}, [Narrower(BEFORE, int(DAY), NO_LIMIT)]),
        (KAFKA_4, KAFKA_2 | {DIFFERENCE: DAY}, [Narrower(DIFFERENCE, int(DAY), NO_LIMIT)]),
        (KAFKA_4, KAFKA_3 | {DIFFERENCE: "5"}, [Narrower(DIFFERENCE, 5, NO_LIMIT)]),
        ({MAX_MESSAGE_BYTES: "9"}, {MAX_MESSAGE_BYTES: "8"}, [Narrower(MAX_MESSAGE_BYTES, 8, 9)]),
        ({MAX_MESSAGE_BYTES: "9"}, {MAX_MESSAGE_BYTES: "9"}, []),
        ({}, KAFKA_4, []),
        (KAFKA_4, {}, []),
    ],
)
def test_narrower(here: Values, there: Values, found: list[Narrower]) -> None:
    assert narrower(here, there) == found


@pytest.mark.parametrize(
    ("here", "defaults", "given"),
    [
        (KAFKA_4, KAFKA_4, {}),
        (KAFKA_3, KAFKA_4, {AFTER: NEVER}),
        (KAFKA_4 | {AFTER: DAY}, KAFKA_4 | {BEFORE: DAY}, {AFTER: DAY, BEFORE: NEVER}),
        (KAFKA_4, KAFKA_2 | {DIFFERENCE: HOUR}, {DIFFERENCE: NEVER}),
        (KAFKA_4, KAFKA_3 | {AFTER: "1"}, {AFTER: HOUR, DIFFERENCE: NEVER}),
        (KAFKA_4, {}, {}),
        ({MAX_MESSAGE_BYTES: "9"}, {MAX_MESSAGE_BYTES: "8"}, {}),
    ],
)
def test_what_a_new_topic_is_given(here: Values, defaults: Values, given: dict[str, str]) -> None:
    """Only what the destination knows, and only where it is needed."""
    assert taken_over(here, defaults) == given


def of_brokers(values: Values) -> dict[str, str]:
    return {f"log.{name}": value or "" for name, value in values.items()}


async def created(source: FakeCluster, destination: FakeCluster, **changes: Any) -> dict[str, str]:
    """The configs of topic "t" after the mirror has made it, but for those that every topic gets."""
    source.add_topic("t", configs={AFTER: DAY})
    async with mirroring(source, destination, **changes):
        await until(lambda: "t" in destination.topics)
    fixed = ("compression.type", "message.timestamp.type")
    return {name: value for name, value in destination.topics["t"].configs.items() if name not in fixed}


async def test_a_new_topic_takes_what_the_source_took() -> None:
    """A clock two hours ahead at a source that allows a day, and a destination that allows one hour."""
    async with clusters(brokers=2) as (source, destination):
        source.broker_configs = destination.broker_configs = of_brokers(KAFKA_4)
        assert await created(source, destination) == {AFTER: DAY}


async def test_without_taking_it_over_the_destination_refuses() -> None:
    """The mutation: the new topic has its brokers' default."""
    async with clusters() as (source, destination):
        source.broker_configs = destination.broker_configs = of_brokers(KAFKA_4)
        with patch.object(creating, "taken_over", lambda *_: {}):
            assert await created(source, destination) == {}


async def test_a_config_that_the_destination_does_not_know_is_not_given() -> None:
    """It would refuse to make the topic: also where the operator wants it copied."""
    async with clusters() as (source, destination):
        source.broker_configs, destination.broker_configs = of_brokers(KAFKA_4), of_brokers(KAFKA_2)
        assert await created(source, destination, synced_configs=(AFTER,)) == {}


async def test_brokers_that_may_not_be_asked() -> None:
    """Nothing is known, and nothing is given but what is to be copied anyway."""
    async with clusters() as (source, destination):
        source.broker_configs = destination.broker_configs = of_brokers(KAFKA_4)
        for _ in range(8):
            destination.next("DescribeConfigs", faults.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        assert await created(source, destination, synced_configs=(AFTER,)) == {AFTER: DAY}


async def test_topics_that_exist_are_checked_beforehand() -> None:
    """
    1. Seven topics exist at the destination, narrower than the source's by two configs. One line for each config, with
       both values, the first topics, and what to do. All of them are copied: the data decide.
    2. Told once, however often they are looked at; a new one is told by itself.
    """
    names = [f"t{number}" for number in range(7)]
    async with clusters() as (source, destination):
        source.broker_configs = destination.broker_configs = of_brokers(KAFKA_4)

        def add(name: str) -> None:
            source.add_topic(name, configs={AFTER: DAY, MAX_MESSAGE_BYTES: "2000000"})
            destination.add_topic(name)

        for name in names:
            add(name)
        async with mirroring(source, destination, refresh_topics_interval_ms=5) as flow:
            await flow.copied()
            size, after = flow.log.of("destination_narrower")
            assert (size["config"], size["destination_value"], size["needed"]) == (MAX_MESSAGE_BYTES, 1048588, 2000000)
            assert (
                "t0, t1, t2, t3, t4 and 2 more at destination: message.timestamp.after.max.ms=3600000"
                in after["detail"]
            )
            assert f"set {AFTER}={DAY} on these topics" in after["remedy"]
            add("late")
            await until(lambda: len(flow.log.of("destination_narrower")) == 4)
            assert "late at destination: max.message.bytes=" in flow.log.of("destination_narrower")[2]["detail"]
