"""A MirrorMaker 2 that is succeeded: the flow goes on in its copies, without a gap and without a repeat."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from confluent_kafka import Producer

from bench.copiers import jvm, mm2
from mirror.net.admin.groups import CommittedOffset
from mirror.records.header import BatchHeader
from mirror.sandbox import SandboxCluster
from mirror.sandbox.children.process import Process, Processes
from mirror.sandbox.kafka import jars, java
from mirror.service.offsets import mirrormaker as mirrormaker_module
from mirror.service.offsets.mirrormaker import Found, TakenOver, TakeOver, TakeOverError, _offset_of, as_data, as_text
from tests.records.builders import Record, kafka_batch, raw_batch
from tests.service.offsets.stage import HIDDEN, hide, sides
from tests.service.runs.starting.test_starting import command
from tests.service.runs.test_mapped import read_from
from tests.service.stage.kafka_side import create_topic
from tests.service.stage.running import config_text, mirror

PATIENCE_S = 180.0


@contextmanager
def mirrormaker(source: str, destination: str, topic: str, **more: str) -> Iterator[Process]:
    """A real MirrorMaker 2, in dedicated mode, under the names that it gives by default. ``more``: with underscores."""
    settings = {
        **mm2.SETTINGS,
        "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
        "tasks.max": "1",
        "clusters": "source, destination",
        "source.bootstrap.servers": source,
        "destination.bootstrap.servers": destination,
        "source->destination.enabled": "true",
        "source->destination.topics": topic,
        "destination->source.enabled": "false",
    } | {key.replace("_", "."): value for key, value in more.items()}
    classpath = jars.classpath_of([("org.apache.kafka", "connect-mirror", mm2.VERSION)])
    processes = Processes()
    try:
        path = processes.folder / "mm2.properties"
        path.write_text(jvm.render(settings))
        options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
        line = [java.find(), *options, "-cp", classpath, mm2.MAIN, str(path)]
        yield processes.spawn(line, processes.folder / "mm2.log")
    finally:
        processes.close()


def write(bootstrap: str, topic: str, numbers: range) -> None:
    """Records "0", "1", … in batches of ten, compressed."""
    settings = {"bootstrap.servers": bootstrap, "compression.codec": "lz4", "linger.ms": 1_000}
    producer = Producer({**settings, "batch.num.messages": 10})
    for number in numbers:
        producer.produce(topic, b"%d" % number, b"key", partition=0, headers=[("n", b"%d" % number)])
    assert producer.flush(60) == 0


def values(sandbox: SandboxCluster, topic: str) -> list[bytes | None]:
    return [value for _, _, value in read_from(sandbox, topic, 0)]


def await_values(sandbox: SandboxCluster, topic: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(found := values(sandbox, topic)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


@pytest.mark.broker
def test_a_real_one_is_succeeded(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. MirrorMaker 2 copies twenty records and is stopped; started again, it copies fifteen more and is killed before it
       has noted that.
    2. While it still ran, nothing was taken over. Now its end is found at the source, behind what it had noted.
    3. The mirror goes on in the same topic, inside a batch: each record is there once, in order.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    copy = f"source.{topic_name}"
    create_topic(source, topic_name)
    create_topic(destination, copy)
    config = tmp_path / "mirror.yaml"
    flow = {
        "offsets": "mapped", "replication.policy": "prefix", "start.from": "committed", "start.group": topic_name,
        "flow.id": topic_name,
    }  # fmt: skip
    config.write_text(config_text(source, destination, [topic_name], flow=flow))
    write(source, topic_name, range(20))
    with mirrormaker(source, destination, topic_name) as process:
        await_values(destination_cluster, copy, 20)
        assert "still runs" in command("offsets", "take-over", "-c", str(config), expect=1)
        process.signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) is not None
    with mirrormaker(source, destination, topic_name, offset_flush_interval_ms="3600000") as process:
        write(source, topic_name, range(20, 35))
        await_values(destination_cluster, copy, 35)
        process.signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    write(source, topic_name, range(35, 50))
    deadline = time.monotonic() + PATIENCE_S
    while "still runs" in (told := _take_over(config)):
        assert time.monotonic() < deadline
        time.sleep(1)
    row = json.loads(told)["partitions"][0]
    assert (row["into"], row["noted"], row["offset"], row["found"]) == (copy, 20, 35, "later")
    for _ in range(2):
        assert f"committed for group {topic_name}" in command("offsets", "take-over", "-c", str(config), "--apply")
    with mirror(config, config.read_text()) as running:
        running.wait_event("caught_up")
        assert running.stop() == 0
    assert values(destination_cluster, copy) == [b"%d" % number for number in range(50)]


def _take_over(config: Path) -> str:
    try:
        return command("offsets", "take-over", "-c", str(config), "--format", "json")
    except AssertionError as error:
        return str(error)


# Without a MirrorMaker 2.


class Stored:
    """A log of these records, in batches of two, then ``aborted`` ones in a batch of a transaction with its marker,
    then other markers. With ``open_from``, a transaction is open from that offset on."""

    def __init__(
        self, records: list[Record], *, first: int = 0, markers: int = 0, aborted: list[Record] | None = None,
        open_from: int = -1,
    ) -> None:  # fmt: skip
        pairs = [records[at : at + 2] for at in range(0, len(records), 2)]
        self._batches = [
            kafka_batch([one._replace(offset=at) for at, one in enumerate(pair)], base_offset=first + 2 * number)
            for number, pair in enumerate(pairs)
        ]
        end = first + len(records)
        self._aborted: list[tuple[int, int]] = []
        if aborted:
            self._aborted = [(PRODUCER, end)]
            batch = [one._replace(offset=at) for at, one in enumerate(aborted)]
            self._batches.append(kafka_batch(batch, base_offset=end, transactional=True, producer_id=PRODUCER))
            end += len(aborted)
            self._batches.append(
                raw_batch(
                    ABORT, base_offset=end, attributes=0x30, record_count=1, last_offset_delta=0, producer_id=PRODUCER
                )
            )
            end += 1
        self._batches += [
            raw_batch(b"", base_offset=end + at, attributes=0x30, record_count=1, last_offset_delta=0)
            for at in range(markers)
        ]
        self._first, self._end = first, end + markers
        self._stable = open_from if open_from >= 0 else self._end
        self.name = "t-0 at b"

    async def start(self) -> int:
        return self._first

    async def visible_end(self) -> int:
        return self._end

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Any:
        found = [(BatchHeader.read(one), memoryview(one)) for one in self._batches]
        return SimpleNamespace(
            batches=[each for each in found if each[0].last_offset >= offset],
            aborted=self._aborted if committed else [],
            last_stable_offset=self._stable,
        )


PRODUCER = 77
ABORT = b"\x16\0\0\0\x08\0\0\0\0\0\0"
"""The record of an ABORT marker: its key is version 0, type 0."""


def records(*numbers: int) -> list[Record]:
    return [Record(0, 1_000 + number, b"key", b"%d" % number) for number in numbers]


async def place(here: Stored, there: Stored, noted: int) -> TakenOver:
    flow: Any = SimpleNamespace(aliases=("a", "b"), selection=SimpleNamespace(destination_of=lambda name: f"a.{name}"))
    one = TakeOver(flow)
    logs = {"t": here, "a.t": there}
    one._source = one._destination = None  # type: ignore[assignment]
    one._log = lambda _, topic, index: logs[topic]  # type: ignore[method-assign,assignment,return-value]
    return await one._place("t", 0, noted=noted)


@pytest.mark.parametrize(
    ("copied", "markers", "noted", "offset", "found"),
    [
        ((0, 1, 2), 0, 3, 3, Found.SAME),
        ((0, 1, 2), 3, 3, 3, Found.SAME),
        ((0, 1, 2, 3), 0, 2, 4, Found.LATER),
        ((), 0, 3, 3, Found.EMPTY),
        ((), 2, 3, 3, Found.EMPTY),
        ((0, 1, 77), 0, 3, 3, Found.UNSURE),
        ((0, 1), 0, 3, 3, Found.UNSURE),
    ],
)
async def test_where_it_goes_on(copied: tuple[int, ...], markers: int, noted: int, offset: int, found: Found) -> None:
    """Behind the copy's last record, if that is found; markers of transactions may stand behind it."""
    row = await place(Stored(records(*range(6))), Stored(records(*copied), first=100, markers=markers), noted)
    assert (row.offset, row.found, row.into) == (offset, found, "a.t")


async def test_records_that_are_alike() -> None:
    """Two of them from the noted offset on: it cannot be said which one is the copy's last."""
    row = await place(Stored(records(0, 1, 1, 1)), Stored(records(0, 1)), 2)
    assert (row.offset, row.found, row.detail) == (2, Found.UNSURE, "3 records from there on are like it")


@pytest.mark.parametrize(
    ("append_time", "copied", "offset", "found"),
    [(True, (0, 1, 3), 2, Found.UNSURE), (False, (0, 1, 3), 4, Found.LATER), (True, (0, 1), 2, Found.SAME)],
)
async def test_not_all_is_searched(
    monkeypatch: pytest.MonkeyPatch, append_time: bool, copied: tuple[int, ...], offset: int, found: Found
) -> None:
    """
    1. A copy without the source's timestamps: one record is like its last one. There may be more behind what is
       searched, so nothing is said. Not so of the very record that was noted.
    2. Timestamps tell records of the same content apart.
    """
    last = mirrormaker_module._last

    async def appended(log: Any) -> Any:
        known = await last(log)
        return known and known._replace(append_time=append_time)

    monkeypatch.setattr(mirrormaker_module, "_last", appended)
    assert (await place(Stored(records(*range(6))), Stored(records(*copied)), 2)).found is not Found.UNSURE
    monkeypatch.setattr(mirrormaker_module, "MOST_SEARCHED", 10)
    row = await place(Stored(records(*range(6))), Stored(records(*copied)), 2)
    assert (row.offset, row.found) == (offset, found)
    assert ("offset 3 is like it" in row.detail) is (found is Found.UNSURE)


async def test_a_source_that_has_deleted_it() -> None:
    row = await place(Stored(records(6, 7), first=6), Stored(records(0, 1, 2)), 3)
    assert row.found is Found.UNSURE


async def test_records_of_an_aborted_transaction() -> None:
    """A MirrorMaker 2 with exactly.once.source.support that was killed in one has left them: they are no copies, and
    are copied again."""
    there = Stored(records(0, 1), first=100, aborted=records(2, 3))
    row = await place(Stored(records(*range(6))), there, 2)
    assert (row.offset, row.found) == (2, Found.SAME)
    nothing = await place(Stored(records(*range(6))), Stored([], first=100, aborted=records(0)), 0)
    assert (nothing.offset, nothing.found) == (0, Found.EMPTY)


async def test_a_transaction_that_is_open() -> None:
    with pytest.raises(TakeOverError, match="a transaction is still open in t-0 at b from offset 1 on"):
        await place(Stored(records(*range(6))), Stored(records(0, 1), open_from=1), 1)


async def test_more_is_noted_than_there_is() -> None:
    """Of an empty copy, nothing shows that this is the same source."""
    row = await place(Stored(records(0, 1)), Stored([]), 3)
    assert (row.offset, row.found, row.detail) == (3, Found.UNSURE, "more is noted than the source has: it ends at 2")


async def test_a_copy_with_nothing_but_markers_near_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrormaker_module, "MOST_BACK", 3)
    row = await place(Stored(records(0, 1)), Stored(records(0, 1), markers=3), 2)
    assert (row.found, row.detail) == (Found.UNSURE, "the last 3 batches of t-0 at b hold no record that counts")


def place_of(index: int) -> bytes:
    return json.dumps(["MirrorSourceConnector", {"cluster": "a", "partition": index, "topic": "t"}]).encode()


def noting(*notes: tuple[int, int]) -> list[Record]:
    """What Connect writes for (partition, offset of its last record)."""
    return [Record(0, 1, place_of(index), json.dumps({"offset": offset}).encode()) for index, offset in notes]


def taking_over(logs: dict[tuple[str, int], Any]) -> TakeOver:
    """One of a.t, with these logs: the source's, its copies a.t, and the offsets topic."""
    selection = SimpleNamespace(destination_of=lambda name: f"a.{name}", selects=lambda name: name == "t")
    flow: Any = SimpleNamespace(aliases=("a", "b"), name="a->b", selection=selection)
    one = TakeOver(flow)
    topics: dict[str, Any] = {}
    for topic, index in logs:
        topics.setdefault(topic, SimpleNamespace(leaders={})).leaders[index] = None
    cluster: Any = SimpleNamespace(name="b", topics=topics, refresh=AsyncMock(return_value={}))
    one._source = one._destination = cluster
    one._check_stopped = AsyncMock()  # type: ignore[method-assign]
    one._log = lambda _, topic, index: logs[topic, index]  # type: ignore[method-assign,assignment]
    return one


OFFSETS = "mm2-offsets.a.internal"


async def test_notes_of_an_aborted_transaction() -> None:
    """They were never made."""
    noted = await taking_over({(OFFSETS, 0): Stored(noting((0, 1)), aborted=noting((0, 3)))})._noted()
    assert noted == {("t", 0): 1}
    with pytest.raises(TakeOverError, match="transaction is still open"):
        await taking_over({(OFFSETS, 0): Stored(noting((0, 1), (0, 2)), open_from=1)})._noted()


async def test_notes_that_cannot_be_read() -> None:
    damaged = Stored(noting((0, 1)))
    damaged._batches = [raw_batch(b"?", base_offset=0, record_count=1, last_offset_delta=0)]
    with pytest.raises(
        TakeOverError, match=r"mm2-offsets\.a\.internal-0 cannot be read: the batch at offset 0 is damaged"
    ):
        await taking_over({(OFFSETS, 0): damaged})._noted()


async def test_partitions_that_were_copied_and_not_noted() -> None:
    """They would be copied whole, so that the copy held records twice: somebody has to look. One without a copied
    record begins at the source's first."""
    source = {("t", index): Stored(records(0, 1, 2)) for index in range(4)}
    copies = {("a.t", 0): Stored(records(0, 1)), ("a.t", 1): Stored(records(0)), ("a.t", 2): Stored([], markers=2)}
    one = taking_over({(OFFSETS, 0): Stored(noting((0, 1))), **source, **copies})
    rows = await one.look()
    assert [(row.partition, row.noted, row.offset, row.found) for row in rows] == [
        (0, 2, 2, Found.SAME), (1, 0, 0, Found.UNSURE)
    ]  # fmt: skip
    assert "has noted nothing" in rows[1].detail


def test_as_text() -> None:
    rows = [
        TakenOver("t", 0, "a.t", 20, 35, Found.LATER),
        TakenOver("t", 1, "a.t", 3, 3, Found.UNSURE, "from offset 2 on"),
    ]
    text = as_text(as_data("a->b", "g", rows, committed=False)).splitlines()
    assert text[0].split() == ["TOPIC", "PARTITION", "INTO", "NOTED", "GOES", "ON", "AT", "BECAUSE"]
    assert text[1].startswith("t      0          a.t   20     35          more was copied")
    assert text[2].endswith("is not found at the source (from offset 2 on)")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b'["MirrorSourceConnector",{"cluster":"a","partition":3,"topic":"t"}]', ("t", 3)),
        (b'["a->b.MirrorSourceConnector",{"cluster":"a","partition":0,"topic":"t"}]', ("t", 0)),
        (b'["MirrorSourceConnector",{"cluster":"c","partition":3,"topic":"t"}]', None),
        (b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"a","targetClusterAlias":"b"}]', None),
        (b'["MirrorSourceConnector",{"cluster":"a","partition":"3","topic":"t"}]', None),
        (b"[1]", None),
        (b"[" * 100_000, None),
        (b'["MirrorSourceConnector",{"cluster":"a","partition":true,"topic":"t"}]', None),
        (b"\xff", None),
        (None, None),
    ],
)
def test_keys_of_connect(key: bytes | None, expected: tuple[str, int] | None) -> None:
    flow: Any = SimpleNamespace(aliases=("a", "b"))
    assert TakeOver(flow)._place_of(key) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"offset":7}', 7), (b'{"offset":-1}', None), (b'{"offset":9223372036854775807}', None),
        (b'{"offset":"7"}', None), (b'{"offset":true}', None), (b"null", None), (None, None), (b"{" * 100_000, None),
    ],
)  # fmt: skip
def test_values_of_connect(value: bytes | None, expected: int | None) -> None:
    assert _offset_of(value) == expected


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ({}, ""),
        ({("t", 0): 35}, ""),
        ({("t", 0): 34}, "has committed offset 34 of t-0"),
        ({("other", 1): 5}, "has committed offset 5 of other-1"),
    ],
)
async def test_a_group_that_is_somebody_elses(
    before: dict[tuple[str, int], int], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets are not changed."""
    offsets = {key: CommittedOffset(offset) for key, offset in before.items()}
    commit = AsyncMock(return_value={("t", 0): 0})
    groups = SimpleNamespace(committed=AsyncMock(return_value={"g": offsets}), commit=commit)
    monkeypatch.setattr(mirrormaker_module, "Groups", lambda _: groups)
    flow: Any = SimpleNamespace(aliases=("a", "b"))
    one = TakeOver(flow)
    one._source = SimpleNamespace(name="a")  # type: ignore[assignment]
    rows = [TakenOver("t", 0, "a.t", 20, 35, Found.LATER)]
    if told:
        with pytest.raises(TakeOverError, match=told):
            await one.commit("g", rows)
        commit.assert_not_awaited()
    else:
        await one.commit("g", rows)
        commit.assert_awaited_once_with("g", {("t", 0): CommittedOffset(35)})


def test_a_flow_that_cannot(tmp_path: Path) -> None:
    config = tmp_path / "mirror.yaml"
    config.write_text(config_text("h:1", "h:2", ["t"]))
    assert "set offsets: mapped, start.from: committed and start.group" in command(
        "offsets", "take-over", "-c", str(config), expect=1
    )


async def test_a_topic_that_may_not_be_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """MirrorMaker 2 has copied it. Left out, the flow would copy all of it again as soon as it may see it. One that was
    deleted at the source is due no more."""
    hide(monkeypatch)
    async with sides(exact=False, topics=(".*",)) as at:
        at.copied(9)
        at.west.add_topic("hidden").error = HIDDEN
        async with TakeOver(at.flow) as one:
            noted = {("t", 0): 8, ("hidden", 0): 8, ("deleted", 0): 8}
            monkeypatch.setattr(one, "_noted", AsyncMock(return_value=noted))
            monkeypatch.setattr(one, "_check_stopped", AsyncMock())
            monkeypatch.setattr(one, "_place", AsyncMock(return_value=TakenOver("t", 0, "t", 9, 9, Found.SAME)))
            with pytest.raises(TakeOverError) as caught:
                await one.look()
            assert str(caught.value) == (
                "MirrorMaker 2 has copied hidden, which may not be described at west: grant the mirror's principal "
                "Describe on it, or have the flow exclude it"
            )
            at.west.topics["hidden"].error = 0
            at.east.add_topic("hidden")
            assert [row.topic for row in await one.look()] == ["t", "t"]
