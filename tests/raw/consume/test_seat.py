"""The seat's own decisions, without a broker: settings, what its errors mean, what callbacks raise."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.net.security.options import SecurityOptions, TlsOptions
from mirror.raw import TopicPartition
from mirror.raw.consume.seat import GroupSeat, _config
from mirror.raw.errors import CommitFailed, GroupFailed, InvalidConfig, NotAuthorized, Unavailable, UnknownTopic
from mirror.raw.settings import ConsumerSettings, read_settings

OPTIONS = ClusterOptions(bootstrap=(("127.0.0.1", 1),))


def settings(**more: Any) -> ConsumerSettings:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return read_settings(ConsumerSettings, {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **named})


def seat_of(**callbacks: Any) -> GroupSeat:
    return GroupSeat(settings(), OPTIONS, **{"on_assign": print, "on_revoke": print, "on_lost": print, **callbacks})


@pytest.fixture
def seat() -> Iterator[GroupSeat]:
    made = seat_of()
    yield made
    made.close()


def test_it_fetches_nothing_and_has_the_programs_name() -> None:
    made = _config(settings(client_id="mine", max_poll_interval_ms=60_000, session_timeout_ms=6_000), OPTIONS)
    assert (made["client.id"], made["group.id"], made["bootstrap.servers"]) == ("mine", "g", "127.0.0.1:1")
    assert (made["max.poll.interval.ms"], made["session.timeout.ms"]) == (60_000, 6_000)
    assert (made["enable.auto.commit"], made["fetch.max.bytes"]) == (False, 1_000)
    wrong = settings(session_timeout_ms=9_000_000, max_poll_interval_ms=9_000_000)
    with pytest.raises(InvalidConfig, match=r"group\.id: .*session\.timeout\.ms"):
        GroupSeat(wrong, OPTIONS, on_assign=print, on_revoke=print, on_lost=print)


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAuthorized, "grant the principal Read on the group g"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized, "grant the principal Read and Describe on the topics"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopic, "create the topic, or subscribe"),
        (KafkaError._FATAL, GroupFailed, "check that no other process has this group.instance.id"),
    ],
)
def test_what_the_program_has_to_know(seat: GroupSeat, code: int, kind: type[Exception], told: str) -> None:
    """Said once, by the next poll()."""
    seat._on_error(KafkaError(code))
    with pytest.raises(kind, match=told):
        seat.poll(0)
    seat.poll(0)


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MAX_POLL_EXCEEDED])
def test_what_heals(seat: GroupSeat, code: int) -> None:
    """The fetches meet a cluster that is away as well; who polls too late loses partitions, and is told by on_lost."""
    seat._on_error(KafkaError(code))
    seat.poll(0)


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (KafkaError.ILLEGAL_GENERATION, CommitFailed, "another member has the partitions meanwhile"),
        (KafkaError._ASSIGNMENT_LOST, CommitFailed, "another member has the partitions meanwhile"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAuthorized, "Read on the group g"),
        (KafkaError._TRANSPORT, CommitFailed, r"commit\(\) again"),
    ],
)
def test_commits(seat: GroupSeat, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception], told: str) -> None:
    class Client:
        answer: Any = None

        def commit(self, **_: object) -> Any:
            if self.answer is None:
                raise KafkaException(KafkaError(code))
            return self.answer

        def close(self) -> None: ...

    client = Client()
    monkeypatch.setattr(seat, "_client", client)
    with pytest.raises(kind, match=told):
        seat.commit({TopicPartition("t", 0): (5, -1)})

    class Refused:
        error = KafkaError(code)

    client.answer = [Refused()]
    with pytest.raises(kind, match=told):
        seat.commit({TopicPartition("t", 0): (5, 3)})
    client.answer = [Place("t", 0, 5)]
    seat.commit({TopicPartition("t", 0): (5, 3)})


def test_offsets_that_nobody_tells(seat: GroupSeat) -> None:
    with pytest.raises(Unavailable, match="group g: the group's offsets: "):
        seat.committed([TopicPartition("t", 0)], 0.2)


def test_what_callbacks_raise_comes_out_of_poll() -> None:
    """Not inside of librdkafka. Partitions are taken over and given up all the same."""
    moved: list[str] = []

    class Client:
        def incremental_assign(self, _: object) -> None:
            moved.append("assigned")

        def pause(self, _: object) -> None:
            moved.append("paused")

        def incremental_unassign(self, _: object) -> None:
            moved.append("unassigned")

    def broken(partitions: list[TopicPartition]) -> None:
        assert partitions == [TopicPartition("t", 3)]
        raise KeyboardInterrupt

    seat = seat_of(on_assign=broken, on_revoke=broken, on_lost=broken)
    try:
        client: Any = Client()
        for happens in (seat._assigned, seat._revoked, seat._were_lost):
            happens(client, [Place("t", 3)])
            with pytest.raises(KeyboardInterrupt):
                seat.poll(0)
        assert moved == ["assigned", "paused", "unassigned", "unassigned"]
    finally:
        seat.close()


def test_a_host_with_a_dot_at_its_end() -> None:
    """librdkafka would look for it in the broker's certificate with the dot."""
    protected = ConnectionOptions(security=SecurityOptions(tls=TlsOptions()))
    options = ClusterOptions(bootstrap=(("kafka.example.com.", 9093),), connection=protected)
    assert _config(settings(), options)["bootstrap.servers"] == "kafka.example.com:9093"
