"""What probes say while nobody answers."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from chaos.witness.probes import topic_id


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), TimeoutError()])
def test_an_id_that_nobody_tells(error: Exception) -> None:
    """A broker may be frozen meanwhile."""
    future: Future[Any] = Future()
    future.set_exception(error)
    side: Any = SimpleNamespace(admin=SimpleNamespace(describe_topics=lambda *_, **__: {"t": future}))
    assert topic_id(side, "t") == ""
