"""A day of an operator, from the first configuration to the way back, by the installed command alone. The brokers are
real and ask the mirror for a certificate. A producer writes and a group reads all the time."""

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from mirror.sandbox import SandboxCluster
from tests.service.day.stage import clusters
from tests.service.day.stage.application import Application, wait_for
from tests.service.day.stage.clusters import MUTUAL, Files
from tests.service.day.stage.operator import CONFIG, REVERSE, Operator, at_work, missing
from tests.service.stage.kafka_side import create_topic, end_of
from tests.service.sync.sides import committed
from tests.shown import console

pytestmark = [pytest.mark.broker, pytest.mark.spark]
CERTIFICATE, GROUP = "client.pem", "billing"
_OPERATING = Path(__file__).resolve().parents[3] / "docs" / "OPERATING.md"
SHOWN = _OPERATING.read_text(encoding="utf-8").partition("## A day with mirror")[2].partition("\n## ")[0]
"""The section that lists these commands."""


@dataclass(frozen=True, kw_only=True)
class Day:
    """Who meets: an operator with files, an application, two clusters."""

    operator: Operator
    app: Application
    files: Files
    west: SandboxCluster
    east: SandboxCluster

    def ends(self, topic: str, partition: int = 0) -> list[int]:
        """Where a partition ends, at west and at east."""
        return [end_of(each.bootstrap_servers, topic, partition) for each in (self.west, self.east)]

    def offsets(self, cluster: SandboxCluster) -> list[int]:
        """What the group has committed of the three partitions of orders."""
        return committed(cluster, GROUP, "orders", 3)

    def copied_from_here(self, topic: str, partition: int = 0) -> None:
        """Waits until what stands at the source now is at the destination."""
        wanted = max(self.ends(topic, partition))
        wait_for(lambda: min(self.ends(topic, partition)) >= wanted, f"the copy of {topic}-{partition}")


@pytest.mark.timeout(1_500)  # thirty commands and two audits: a quarter of an hour on a machine that is busy
def test_a_day(tmp_path: Path) -> None:
    """
    Each step is a function below, in this order; each says what the operator sees. The producer and the group begin
    before the mirror, and move twice. At the end, what was acknowledged was read, and is on both sides: each record
    once, at the same offset.
    """
    files = clusters.made(tmp_path)
    with clusters.clusters(files) as (west, east), at_work(tmp_path) as operator:
        day = Day(operator=operator, app=Application(files, GROUP), files=files, west=west, east=east)
        create_topic(west.bootstrap_servers, "orders", 2)
        day.app.partitions += [("orders", 0), ("orders", 1)]
        with day.app.reading(west), day.app.writing(west):
            for step in (
                writes_a_configuration, plans, starts, looks_at_status_page_and_metrics, adds_a_topic,
                pauses_and_resumes, reloads_a_mistake, throttles, rotates_the_certificate, grows_partitions,
                syncs_a_group, restarts_the_workers, stops_and_starts, cannot_cut_over_yet,
            ):  # fmt: skip
                began = time.monotonic()
                step(day)
                print(f"-- {step.__name__}: {time.monotonic() - began:.1f} s")
        cuts_over(day)
        with ExitStack() as at_east:
            at_east.enter_context(day.app.reading(east))
            at_east.enter_context(day.app.writing(east))
            day.app.more()
            turns_round(day)
        cuts_over_back(day)
        with day.app.reading(west), day.app.writing(west):
            day.app.more()
        assert day.app.check(west) > 1_000
        assert missing(console(SHOWN), operator.typed) == []


def test_the_list_of_commands_is_compared_in_its_order() -> None:
    a, b, c = ["a"], ["b"], ["c"]
    assert missing([a, c], [a, b, c]) == []
    assert missing([a, b], [b, a]) == [b]
    assert missing([a, a], [a]) == [a]
    assert len(console(SHOWN)) > 20


def writes_a_configuration(day: Day) -> None:
    """From the reference, in which every key stands: clusters, certificates, topics."""
    operator = day.operator
    operator.types("config reference", to=CONFIG)
    (operator.folder / CERTIFICATE).write_bytes(day.files.old.read_bytes())

    def secured(cluster: SandboxCluster) -> str:
        return (
            f'    bootstrap.servers: "{cluster.servers(MUTUAL)}"\n    security.protocol: SSL\n'
            f"    ssl.ca.location: {day.files.ca}\n    ssl.certificate.location: {CERTIFICATE}"
        )

    operator.edits(
        ("  source:", "  west:"),
        ("  destination:", "  east:"),
        ('  "source->destination":', '  "west->east":'),
        ('    bootstrap.servers: "127.0.0.1:9092"', secured(day.west)),
        ('    bootstrap.servers: "127.0.0.1:9192"', secured(day.east)),
        ("    refresh.topics.interval.ms: .*", "    refresh.topics.interval.ms: 1000"),
        ("http.listen: .*", f'http.listen: "{operator.address}"'),
    )
    said = operator.types("validate -c FILE", code=78)
    assert f"{CONFIG}:" in said
    assert "security.protocol" in said
    operator.edits(
        ('    security.protocol: "PLAINTEXT"', ""),
        ('    ssl.ca.location: ""', ""),
        ('    ssl.certificate.location: ""', ""),
    )
    operator.types("validate -c FILE")


def plans(day: Day) -> None:
    """What would be created; nothing is refused, and nothing done."""
    day.app.more()
    said = day.operator.types("plan -c FILE --all")
    assert "orders" in said
    assert clusters.partitions_of(day.east, "orders") == 0


def starts(day: Day) -> None:
    """In the background; a second start starts no second one."""
    assert day.operator.types("start -c FILE").startswith("mirror: started, process ")
    day.copied_from_here("orders")
    assert day.operator.types("start -c FILE").startswith("mirror: already running, process ")


def looks_at_status_page_and_metrics(day: Day) -> None:
    """All three say the same."""
    operator = day.operator
    operator.until_status(lambda it: it["ready"] and len(it["partitions"]) == 2, "two partitions")
    said = operator.types("status -c FILE")
    assert "west->east" in said
    assert "west-&gt;east" in operator.opens("/")
    assert operator.opens("/-/ready")
    assert operator.metric("mirror_ready") == [1]
    assert sum(operator.metric("mirror_replicated_records_total", topic="orders")) > 0
    assert operator.metric("mirror_cluster_up", cluster="west") == [1]


def adds_a_topic(day: Day) -> None:
    """A topic that the configuration's expression matches comes by itself, and the group finds it as well."""
    create_topic(day.west.bootstrap_servers, "payments.eu")
    day.app.partitions.append(("payments.eu", 0))
    wait_for(lambda: clusters.partitions_of(day.east, "payments.eu") == 1, "the new topic")
    day.app.more()
    day.copied_from_here("payments.eu")
    assert "payments.eu" in day.operator.types("describe -c FILE payments.eu")


def pauses_and_resumes(day: Day) -> None:
    """A partition stands still, and the other does not; it is no failure. Then it catches up."""
    operator = day.operator
    assert "orders-0 is paused" in operator.types("pause -c FILE orders 0")
    operator.until_status(lambda it: states(it)["orders", 0] == "paused", "the pause")
    assert "paused" in operator.types("status -c FILE")
    assert operator.metric("mirror_partitions", state="paused") == [1]
    stopped_at = day.ends("orders", 0)[1]
    day.app.more()
    day.copied_from_here("orders", 1)
    assert day.ends("orders", 0)[1] == stopped_at < day.ends("orders", 0)[0]
    assert "nosuch" in operator.types("pause -c FILE nosuch", code=1)
    assert "orders-0 is resumed" in operator.types("resume -c FILE orders 0")
    day.copied_from_here("orders", 0)


def states(status: dict) -> dict[tuple[str, int], str]:  # type: ignore[type-arg]
    """The state of each partition."""
    return {(each["topic"], each["partition"]): each["state"] for each in status["partitions"]}


def reloads_a_mistake(day: Day) -> None:
    """It is told with its line, and the mirror goes on as it was."""
    operator = day.operator
    operator.edits(("    max.bytes.per.second: 0", "    max.bytes.per.second: fast"))
    said = operator.types("reload -c FILE", code=78)
    assert f"{CONFIG}:" in said
    assert "not reloaded: the mirror goes on" in said
    operator.types("status -c FILE", code=78)
    operator.edits(("    max.bytes.per.second: fast", "    max.bytes.per.second: 0"))
    assert "untouched: west->east" in operator.types("reload -c FILE")
    assert operator.metric("mirror_config_last_reload_successful") == [1]
    day.copied_from_here("orders")


def throttles(day: Day) -> None:
    """A topic's limit takes effect without a restart of the flow: its lag grows, and without the limit it goes."""
    operator = day.operator

    def lag() -> float:
        return sum(operator.metric("mirror_replication_lag_records", topic="orders"))

    operator.edits(("    topic.max.bytes.per.second: {}", '    topic.max.bytes.per.second: {"orders": 1KiB}'))
    assert "limited: west->east" in operator.types("reload -c FILE")
    wait_for(lambda: lag() > 500, "a lag")
    day.copied_from_here("payments.eu")
    operator.edits(("    topic.max.bytes.per.second: .*", "    topic.max.bytes.per.second: {}"))
    assert "limited: west->east" in operator.types("reload -c FILE")
    wait_for(lambda: lag() < 100, "the end of the lag")


def rotates_the_certificate(day: Day) -> None:
    """
    1. /metrics shows when the certificate ends. The file is replaced as a whole.
    2. /metrics shows the end of the new one, and copying goes on.
    3. The brokers are told to believe the old authority no more. The old certificate is refused, and the new one goes:
       for a command now, and for the mirror at each connection that it makes from now on.
    """
    operator = day.operator
    old, new = clusters.end_of(day.files.old), clusters.end_of(day.files.new)

    def ends() -> set[float]:
        return set(operator.metric("mirror_tls_certificate_expiry_timestamp_seconds"))

    assert ends() == {clusters.end_of(day.files.ca), old}
    (operator.folder / "next.pem").write_bytes(day.files.new.read_bytes())
    (operator.folder / "next.pem").rename(operator.folder / CERTIFICATE)
    wait_for(lambda: ends() == {clusters.end_of(day.files.ca), new}, "the new certificate's end")
    for cluster in (day.west, day.east):
        assert clusters.accepts(cluster, day.files, day.files.old)
        clusters.distrust_the_old(cluster, day.files)
        clusters.until_refused(cluster, day.files, day.files.old)
        assert clusters.accepts(cluster, day.files, day.files.new)
    operator.types("plan -c FILE")
    day.copied_from_here("orders")


def grows_partitions(day: Day) -> None:
    """The destination's topic gets them, too."""
    clusters.grow(day.west, "orders", 3)
    wait_for(lambda: clusters.partitions_of(day.east, "orders") == 3, "the new partition")
    day.app.partitions.append(("orders", 2))
    wait_for(lambda: day.app.acknowledged.get(("orders", 2)), "the producer to know of it")
    day.copied_from_here("orders", 2)
    day.operator.until_status(lambda it: ("orders", 2) in states(it), "the new partition")


def syncs_a_group(day: Day) -> None:
    """First shown, then once by hand, and from then on by itself: the reload restarts the flow, whose connections are
    made with the new certificate."""
    operator = day.operator
    assert GROUP in operator.types("sync -c FILE --dry-run")
    said = operator.types("sync -c FILE", code=1)
    assert "sync.group.offsets.enabled" in said
    operator.edits(
        ("    sync.group.offsets.enabled: false", "    sync.group.offsets.enabled: true"),
        ("    sync.group.offsets.interval.ms: .*", "    sync.group.offsets.interval.ms: 500"),
    )
    before = day.offsets(day.west)
    assert GROUP in operator.types("sync -c FILE")
    once = day.offsets(day.east)
    assert all(0 < carried <= now for carried, now in zip(once, day.offsets(day.west), strict=True))
    assert "restarted: west->east" in operator.types("reload -c FILE")
    wait_for(
        lambda: all(now > max(at) for now, *at in zip(day.offsets(day.east), before, once, strict=True)),
        "the group's offsets to follow",
    )
    assert GROUP in operator.types("offsets -c FILE west->east")


def restarts_the_workers(day: Day) -> None:
    """With two of them, which share the partitions."""
    operator = day.operator
    said = operator.types("restart -c FILE --workers 2")
    assert said.startswith("mirror: restarted, process ")
    assert "all that was sent is acknowledged" in said
    operator.until_status(lambda it: len({each["worker"] for each in it["partitions"]}) == 2, "two workers at work")
    assert operator.metric("mirror_worker_up") == [1, 1]
    day.copied_from_here("orders")


def stops_and_starts(day: Day) -> None:
    """A stop drains; what does not run says so; the next start goes on."""
    operator = day.operator
    assert "drained:  all that was sent is acknowledged" in operator.types("stop -c FILE")
    for partition, offset in enumerate(committed(day.west, "mirror-west->east", "orders", 3)):
        assert offset == day.ends("orders", partition)[1], "what was not committed before is committed as it leaves"
    assert operator.types("stop -c FILE").startswith("mirror: not running")
    said = operator.types("status -c FILE", code=1)
    assert operator.address in said
    day.app.more()
    operator.types("start -c FILE")
    for partition in range(3):
        day.copied_from_here("orders", partition)


def cannot_cut_over_yet(day: Day) -> None:
    """The producer writes."""
    said = day.operator.types("cutover -c FILE west->east --dry-run", code=1)
    assert "orders-0" in said
    assert "nothing was changed" in said


def cuts_over(day: Day) -> None:
    """With the audit. The group has at east what it had at west; then the flow is paused."""
    operator = day.operator
    operator.types("cutover -c FILE west->east")
    certificate = json.loads((operator.folder / "cutover-west-east" / "certificate.json").read_text())
    assert certificate["audit"]["verdict"] == "identical"
    assert [row["source_end"] for row in certificate["partitions"]] == [
        row["destination_end"] for row in certificate["partitions"]
    ]
    assert day.offsets(day.east) == day.offsets(day.west)
    operator.types("pause -c FILE --all")


def turns_round(day: Day) -> None:
    """While the producer writes at east: the way back is prepared, planned and started."""
    operator = day.operator
    operator.types("cutover -c FILE west->east --reverse")
    operator.types("stop -c FILE")
    operator.config = REVERSE
    operator.types("plan -c FILE")
    assert operator.types("start -c FILE").startswith("mirror: started, process ")
    day.app.more()
    for topic, partition in day.app.partitions:
        day.copied_from_here(topic, partition)
    assert "east->west" in operator.types("status -c FILE")


def cuts_over_back(day: Day) -> None:
    """The same in the other direction, audit included. Then both sides have the same records."""
    operator = day.operator
    operator.types("cutover -c FILE east->west")
    assert day.app.check(day.west, day.east) > 1_000
    operator.types("stop -c FILE")
