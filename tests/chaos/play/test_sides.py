"""One of the two clusters of a scenario: what it says of topics that it has already."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from chaos.errors import ChaosError
from chaos.play.sides import Side
from chaos.producers.topics import TopicPlan


def side(code: int, end: int) -> Any:
    """A side whose cluster answers a CreateTopics request with the error, and whose partitions end there."""

    def answer(new: list[Any], **_: Any) -> dict[str, Future[None]]:
        future: Future[None] = Future()
        if code == KafkaError.NO_ERROR:
            future.set_result(None)
        else:
            future.set_exception(KafkaException(KafkaError(code)))
        return {one.topic: future for one in new}

    return SimpleNamespace(
        name="source",
        cluster=SimpleNamespace(brokers=[1]),
        admin=SimpleNamespace(create_topics=answer),
        await_in_sync=lambda topics: None,
        ends=lambda names: dict.fromkeys(names, end),
    )


PLAN = TopicPlan(name="t", partitions=1, writing="idempotent")


def test_a_topic_whose_creation_was_repeated() -> None:
    """Its answer was lost with a broker, and the client asked again."""
    Side.create(side(KafkaError.TOPIC_ALREADY_EXISTS, 0), [PLAN])


def test_a_topic_that_holds_records_already() -> None:
    with pytest.raises(ChaosError, match=r"the source cluster already had \[\('t', 0\)\], with records"):
        Side.create(side(KafkaError.TOPIC_ALREADY_EXISTS, 7), [PLAN])


def test_a_new_topic_that_is_written_at_once() -> None:
    """A mirror may be quicker than the look at the topic's end."""
    Side.create(side(KafkaError.NO_ERROR, 7), [PLAN])


def test_a_topic_that_is_refused() -> None:
    with pytest.raises(ChaosError, match="the source cluster did not create t"):
        Side.create(side(KafkaError.POLICY_VIOLATION, 0), [PLAN])


def test_a_broker_that_died_and_was_brought_up_again() -> None:
    """Nobody had ordered its death: it is told once, though the broker runs again."""
    broker = SimpleNamespace(node_id=1, running=False)

    def start(wait: bool) -> None:
        broker.running = True

    broker.start, broker.wait_ready = start, lambda others: None
    one = Side(SimpleNamespace(name="source", bootstrap_servers="127.0.0.1:1", brokers=[broker]))  # type: ignore[arg-type]
    one.bring_up()
    assert one.died() == ["broker 1 of the source cluster died, and nobody ordered it"]
    assert one.died() == []
