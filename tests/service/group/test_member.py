"""The membership's own decisions, without a broker: settings, missing rights, what is worth a line."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, TopicPartition

from mirror.relay.assignment import Committable, Key
from mirror.relay.partition.claim import Committed
from mirror.service.flows.run import CURRENT
from mirror.service.group import member
from mirror.service.group.member import Membership
from mirror.service.worker_settings import GroupSettings
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import Log


class Nothing:
    """Copies nothing."""

    def assign(self, keys: Iterable[Key], committed: Mapping[Key, Committed] | None = None) -> None: ...

    async def revoke(self, keys: Iterable[Key], timeout_s: float) -> dict[Key, Committable]:
        return {}

    def lose(self, keys: Iterable[Key]) -> None: ...


def membership(log: Log, copying: Nothing | None = None) -> Membership:
    settings = GroupSettings(group_id="g")
    return Membership(
        copying or Nothing(),
        settings,
        bootstrap="a:1",
        client_id="mirror",
        drain_timeout_ms=1,
        refresh_topics_interval_ms=1,
        log=log,
    )


@pytest.mark.parametrize(
    ("code", "right"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "grant Read on the group g at the source"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "grant Read on the mirrored topics at the source"),
    ],
)
async def test_a_missing_right_is_named_once(code: int, right: str) -> None:
    """Whether joining or committing meets it first."""
    log = Log()
    seat = membership(log)
    seat._commit_failed(KafkaError(code))
    seat._on_error(KafkaError(code))
    await some_turns()
    (line,) = log.of("not_authorized")
    assert line["remedy"] == right


async def test_everyday_errors_are_the_data_plane_s() -> None:
    """A broker that is away is told by those who copy from it; a commit that a rebalance overtook is no news."""
    log = Log()
    seat = membership(log)
    seat._on_error(KafkaError(KafkaError._TRANSPORT))
    seat._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    seat._commit_failed(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
    seat._commit_failed(KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE))
    await asyncio.sleep(0)
    await some_turns()
    (line,) = log.lines
    assert line.event == "offsets_not_committed"
    assert seat.counters == {"commits/failed": 2}


GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


@pytest.mark.parametrize("code", GONE)
async def test_a_topic_that_is_gone_is_the_data_plane_s(code: int) -> None:
    """Deleted, or made anew with fewer partitions: the data plane looks, and says what it finds."""
    log, looked = Log(), []
    seat = membership(log)
    seat.on_unknown_topic = lambda: looked.append(1)
    seat._on_error(KafkaError(code))
    await some_turns()
    assert (looked, log.lines) == ([1], [])


class Assigned:
    """librdkafka's side of the callbacks."""

    def incremental_assign(self, partitions: Any) -> None: ...

    def incremental_unassign(self, partitions: Any) -> None: ...

    def pause(self, partitions: Any) -> None: ...

    def committed(self, partitions: Any, timeout: float) -> list[Any]:
        return []

    def memberid(self) -> str:
        return "m"

    def consumer_group_metadata(self) -> bytes:
        return b"generation 1"


async def test_a_lost_session_is_no_seat() -> None:
    """
    1. Assigned: in the group, if only with nothing.
    2. The session is over: out of it, until the group assigns something again.
    """
    log = Log()
    seat, consumer = membership(log), Assigned()
    partitions = [TopicPartition("t", 0)]
    assert not seat.joined
    for found in (partitions, []):
        seat._on_assign(consumer, found)
        await until(lambda: seat.joined)
        seat._on_lost(consumer, found)
        await until(lambda: not seat.joined)
    assert seat.counters == {"rebalances/assigned": 2, "rebalances/lost": 2}
    (line,) = log.of("partitions_lost")
    assert (line["count"], line["assignment"]) == (1, {"t": [0]})
    assert "no heartbeat of this worker for a session timeout, or the topics have changed" in line["detail"]


class Client(Assigned):
    """The same, with a seat or without; ``closed`` when it is."""

    made: ClassVar[list["Client"]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        self.made.append(self)
        self.subscribed: list[list[str]] = []
        self.member_id = ""
        self.closed = False

    def subscribe(self, topics: list[str], **_: Any) -> None:
        self.subscribed.append(topics)

    def poll(self, timeout_s: float) -> None:
        time.sleep(0.001)

    def memberid(self) -> str:
        return self.member_id

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("comes_back", [True, False])
async def test_topics_that_change_while_the_seat_is_lost(monkeypatch: pytest.MonkeyPatch, comes_back: bool) -> None:
    """
    1. Before there ever was a seat, they change at once.
    2. Once it was lost, they change when there is one again (librdkafka would end the process: test_seat)...
    3. ...or by another client.
    """
    monkeypatch.setattr("mirror.service.group.client.Consumer", Client)
    monkeypatch.setattr("mirror.service.group.member.SEAT_TIMEOUT_S", 10.0 if comes_back else 0.05)
    monkeypatch.setattr(Client, "made", [])
    seat = membership(Log())
    seat.start(["a"])
    await until(lambda: bool(Client.made and Client.made[0].subscribed))
    (client,) = Client.made
    seat.subscribe(["b"])
    await until(lambda: client.subscribed == [["a"], ["b"]])
    seat._on_assign(client, [])
    seat.subscribe(["c"])
    if comes_back:
        await asyncio.sleep(0.05)
        assert client.subscribed == [["a"], ["b"]]
        client.member_id = "m"
        await until(lambda: client.subscribed == [["a"], ["b"], ["c"]])
        assert not client.closed
    else:
        await until(lambda: len(Client.made) == 2 and bool(Client.made[1].subscribed))
        assert client.closed
        assert client.subscribed == [["a"], ["b"]]
        assert Client.made[1].subscribed == [["c"]]
    await seat.stop()
    assert Client.made[-1].closed


async def test_trouble_with_secrets_is_told_once() -> None:
    log = Log()
    found = membership(log)
    for _ in range(2):
        found._trouble("the password is not there")
    await until(lambda: bool(log.of("group_trouble")))
    await some_turns()
    (told,) = log.of("group_trouble")
    assert told["detail"] == "the password is not there"


async def test_what_is_done_for_it_is_its_flow_s() -> None:
    """What the event loop does for the thread has the flow's context, also what waits for a drain: an exception in a
    callback that this asks for is charged to the flow, and not to every one of the process."""
    ours: Any = object()
    CURRENT.set(ours)
    found: list[object] = []

    class Asking(Nothing):
        def _ask(self) -> None:
            asyncio.get_running_loop().call_soon(lambda: found.append(CURRENT.get()))

        def assign(self, keys: Iterable[Key], committed: Mapping[Key, Committed] | None = None) -> None:
            self._ask()

        async def revoke(self, keys: Iterable[Key], timeout_s: float) -> dict[Key, Committable]:
            self._ask()
            await asyncio.sleep(0)
            self._ask()
            return {}

        def lose(self, keys: Iterable[Key]) -> None:
            self._ask()

    seat, consumer, partitions = membership(Log(), Asking()), Assigned(), [TopicPartition("t", 0)]
    CURRENT.set(None)
    for call in (seat._on_assign, seat._on_revoke, seat._on_lost):
        await asyncio.get_running_loop().run_in_executor(None, call, consumer, partitions)
    await until(lambda: len(found) == 4)
    assert found == [ours] * 4


async def test_an_event_loop_that_hangs_while_partitions_are_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread gives up, and is assigned the partitions again. The loop does it all later, in the same order: the
    revocation has begun before it comes to the assignment, and is cancelled."""
    told: list[str] = []

    class Revoking(Nothing):
        def assign(self, keys: Iterable[Key], committed: Mapping[Key, Committed] | None = None) -> None:
            told.append("assign")

        def revoke(self, keys: Iterable[Key], timeout_s: float) -> Coroutine[Any, Any, dict[Key, Committable]]:
            told.append("revoke")
            return self._drain()

        async def _drain(self) -> dict[Key, Committable]:
            try:
                await asyncio.sleep(3_600)
            finally:
                told.append("cancelled")
            raise AssertionError("unreachable")

    seat, consumer, partitions = membership(Log(), Revoking()), Assigned(), [TopicPartition("t", 0)]
    seat._drain_timeout_s = 0.0
    monkeypatch.setattr(member, "DRAIN_MARGIN_S", 0.01)

    def rebalance() -> None:
        for call in (seat._on_revoke, seat._on_assign):
            call(consumer, partitions)

    thread = threading.Thread(target=rebalance)
    thread.start()
    thread.join()  # in the event loop: it hangs
    await until(lambda: "cancelled" in told)
    assert told[0] == "revoke"
    assert sorted(told) == ["assign", "cancelled", "revoke"]
