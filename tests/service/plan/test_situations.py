"""A table of situations on real brokers: each is planted, found by its line, and then shown true by the mirror."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.sandbox import SandboxCluster
from mirror.sandbox.cluster import start_together
from tests.patience import PATIENT
from tests.relay.locate.test_cleaned import write
from tests.service.plan.planning import Planned, everything, now_ms, plan, run, stamped
from tests.service.runs.holes.test_holes import transactions
from tests.service.stage.kafka_side import HEADER, create_topic, produce, read_log
from tests.service.stage.running import config_text, mirror, status

pytestmark = pytest.mark.broker
HOUR_MS = 3_600_000


class Sides(NamedTuple):
    """Bootstrap servers of both clusters."""

    source: SandboxCluster
    destination: SandboxCluster

    @property
    def here(self) -> str:
        return self.source.bootstrap_servers

    @property
    def there(self) -> str:
        return self.destination.bootstrap_servers


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    """Two clusters of this file alone, in which no group and no transaction was ever used: what a plan must not create
    is not there."""
    # Nothing expires before a plan has seen it: brokers look 30 s after their start, if they are not told otherwise.
    properties = {**PATIENT, "log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "3600000"}
    source = SandboxCluster(name="source", properties=properties, quick=True)
    destination = SandboxCluster(name="destination", properties=properties, quick=True)
    start_together(source, destination)
    try:
        yield Sides(source, destination)
    finally:
        source.close()
        destination.close()


# Each plants what it is named after.


def append_times(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic, message_timestamp_type="LogAppendTime")
    produce(sides.here, topic, 10)


def large_batches(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic)
    create_topic(sides.there, topic, max_message_bytes="1000")
    produce(sides.here, topic, 200, least=100)


def large_batches_for_segments(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic, max_message_bytes="3000000")
    create_topic(sides.there, topic, max_message_bytes="3000000", segment_bytes="1048576")
    stamped(sides.here, topic, now_ms(), value="x" * 1_500_000)


def recompressing(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic)
    create_topic(sides.there, topic, compression_type="gzip")
    produce(sides.here, topic, 10, codec="lz4")


def foreign_records(sides: Sides, topic: str) -> None:
    for bootstrap in sides.here, sides.there:
        create_topic(bootstrap, topic)
        produce(bootstrap, topic, 10)


def clocks_ahead(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic, message_timestamp_after_max_ms=str(24 * HOUR_MS))
    create_topic(sides.there, topic)
    stamped(sides.here, topic, now_ms() + 2 * HOUR_MS)


def sparse(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic, cleanup_policy="compact", segment_ms="60000", min_cleanable_dirty_ratio="0.01")
    write(sides.source, topic, [("a", "1"), ("b", "1"), ("c", "1")], [("b", "2")], name="writer")
    deadline = time.monotonic() + 120
    while all(
        HEADER.unpack_from(batch)[12] == HEADER.unpack_from(batch)[6] + 1 for batch in read_log(sides.here, topic)
    ):
        assert time.monotonic() < deadline, "not cleaned"
        time.sleep(0.1)


def keyless(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic)
    create_topic(sides.there, topic, cleanup_policy="compact")
    stamped(sides.here, topic, now_ms(), key=None)


def leading(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic)
    for _ in range(3):
        stamped(sides.here, topic, now_ms())
    admin = AdminClient({"bootstrap.servers": sides.here})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        deleted.result(30)


def holes(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic)
    transactions(sides.here, topic, 5)


def old_records(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic, retention_ms="-1")
    create_topic(sides.there, topic, retention_ms=str(24 * HOUR_MS))
    stamped(sides.here, topic, now_ms() - 48 * HOUR_MS)


def expiring(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic, retention_ms=str(24 * HOUR_MS))
    stamped(sides.here, topic, now_ms() - 24 * HOUR_MS + 1_000)


def few_replicas(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic)
    create_topic(sides.there, topic, min_insync_replicas="2")
    produce(sides.here, topic, 10)


def more_partitions(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic, 1)
    create_topic(sides.there, topic, 3)


def fewer_partitions(sides: Sides, topic: str) -> None:
    create_topic(sides.here, topic, 3)
    create_topic(sides.there, topic, 1)
    produce(sides.here, topic, 30, partitions=3)


class Situation(NamedTuple):
    """What ``mirror plan`` says of it, and the reason with which the mirror halts; empty: it goes on."""

    plant: Callable[[Sides, str], None]
    line: str
    level: str
    reason: str = ""


SITUATIONS = {
    "append": Situation(append_times, "P07", "told"),
    "large": Situation(large_batches, "P10", "warns"),
    "segment": Situation(large_batches_for_segments, "P10", "refused", "too_large"),
    "gzip": Situation(recompressing, "P13", "refused", "destination_rewrites"),
    "foreign": Situation(foreign_records, "P16", "refused", "foreign_writer"),
    "ahead": Situation(clocks_ahead, "P11", "refused", "invalid_timestamp"),
    "sparse": Situation(sparse, "P09", "told"),
    "keyless": Situation(keyless, "P31", "refused", "refused"),
    "leading": Situation(leading, "P22", "told"),
    "holes": Situation(holes, "P23", "told"),
    "old": Situation(old_records, "P25", "warns"),
    "expiring": Situation(expiring, "P24", "warns"),
    "replicas": Situation(few_replicas, "P26", "warns"),
    "more": Situation(more_partitions, "P15", "warns"),
    "fewer": Situation(fewer_partitions, "P15", "told"),
}


@pytest.fixture(scope="module")
def config(sides: Sides, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flow of all situations, planted."""
    path = tmp_path_factory.mktemp("plan") / "mirror.yaml"
    path.write_text(config_text(sides.here, sides.there, list(SITUATIONS), flow={"settle.ms": 1_000}))
    for name, situation in SITUATIONS.items():
        situation.plant(sides, name)
    return path


@pytest.fixture(scope="module")
def planned(sides: Sides, config: Path) -> Planned:
    """The plan of them, which has changed nothing: neither topics (Kafka's own for groups and transactions among them)
    nor a log."""
    before = everything(sides.source), everything(sides.destination)
    found = plan(config)
    assert (everything(sides.source), everything(sides.destination)) == before
    assert not [name for name in before[1]["configs"] if name.startswith(("__", "mirror-internal"))]
    return found


@pytest.fixture(scope="module")
def told(config: Path, planned: Planned) -> list[str]:
    """The same for people: what needs attention, and everything."""
    del planned  # is the first
    found = [run(config), run(config, "--all")]
    assert [each.returncode for each in found] == [2, 2]
    return [each.stdout for each in found]


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_is_found_by_its_line(planned: Planned, name: str) -> None:
    situation, rows = SITUATIONS[name], planned.rows(name)
    assert situation.line in rows, planned.flow["findings"]
    row = rows[situation.line]
    assert (row["level"], row["reason"] or "") == (situation.level, situation.reason)
    assert row["detail"]
    if situation.level != "told":
        assert row["remedy"]
    refused = planned.rows(name, least="refused")
    assert set(refused) == ({situation.line} if situation.reason else set())
    assert (planned.state(name) == "refused") is bool(situation.reason)


def test_exit_code_and_sums(planned: Planned) -> None:
    assert planned.code == planned.document["exit_code"] == 2
    refused = sum(bool(situation.reason) for situation in SITUATIONS.values())
    assert planned.flow["partitions"]["refused"] == refused
    assert sum(planned.flow["partitions"].values()) == len(SITUATIONS) + 2
    assert planned.flow["partitions"]["unknown"] == 0
    assert planned.flow["to_copy"]["leading_offsets"] == 2
    assert planned.flow["to_copy"]["offsets"] > 0
    assert planned.flow["to_copy"]["bytes"] > 0


def test_what_people_see(told: list[str]) -> None:
    """A summary, then what needs attention, with what to do; --all has the rest."""
    short, whole = told
    assert "REFUSED" in short
    assert "P13 destination-rewrites (destination_rewrites)" in short
    assert "do: " in short
    assert "P22 leading-filler" not in short
    assert "P22 leading-filler" in whole


def test_one_topic(config: Path) -> None:
    found = plan(config, "--topic", "leading")
    assert found.code == 0
    assert [row["topic"] for row in found.flow["by_topic"]] == ["leading"]
    assert run(config, "--topic", "elsewhere").returncode == 64


def test_the_mirror_does_what_was_foretold(planned: Planned, told: list[str], config: Path) -> None:
    """
    1. The mirror halts what was refused, for the reason that was foretold, and copies the rest.
    2. Its remedies name the line.
    3. A plan afterwards says that these partitions have halted; the others fit.
    """
    del planned, told  # of before
    want = {name: each.reason for name, each in SITUATIONS.items() if each.reason}
    stuck = {"replicas"}
    with mirror(config.parent / "run.yaml", config.read_text()) as process:

        def done() -> bool:
            found = {(one["topic"], one["partition"]): one for one in status(process)["partitions"]}
            halted = {topic: one["reason"] for (topic, _), one in found.items() if one["reason"]}
            return (
                halted == want
                and all(one["lag_records"] == 0 for (topic, _), one in found.items() if topic not in {*want, *stuck})
                and len(found) == len(SITUATIONS) + 2
            )

        process.wait_for(done, "all that was foretold")
        remedies = {one["topic"]: one["remedy"] for one in status(process)["partitions"] if one["reason"]}
        for name in want:
            assert f"({SITUATIONS[name].line} " in remedies[name], remedies[name]
        process.stop()
    again = plan(config)
    assert again.code == 2
    for name, reason in want.items():
        rows = again.rows(name, least="refused")
        assert {row["reason"] for row in rows.values()} == {reason}
    assert "P19" in again.rows("foreign")
    for name in ("leading", "holes", "fewer"):
        assert again.state(name) == "fits", again.rows(name)
