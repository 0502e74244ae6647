"""A whole cluster is away, before the start and while the mirror runs: what metrics, status, readiness, health, log and
alerts say is what the test knows to be so, at every look."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.service.stage.kafka_side import assert_identical, create_topic, produce
from tests.service.stage.running import PATIENCE_S, Mirror, cli, config_text, get, mirror, status
from tests.service.telemetry.stage.alerts import firing, samples
from tests.service.telemetry.stage.outages import KINDS, Site, deaf_resolver, two_sites

pytestmark = pytest.mark.broker
PARTITIONS = 2
LOOKS = 4
"""Made in a row once all is told as it should be; it must stay so."""
LOOK_EVERY_S = 0.3
MOST_LINES = 80
SELDOM = {"progress.interval.ms": 300}
BEFORE, MEANWHILE = 40, 30
"""Records written: before the mirror is started, and during the second outage or right behind it."""


class Truth(NamedTuple):
    """What the test knows. ``away``: a cluster's name, or nothing."""

    away: str = ""
    waiting: int | None = 0
    """Records that the destination lacks, and that can be known of; None: not to be known."""
    unassigned: int | None = 0
    """Partitions that nobody holds; None: not to be known."""


@pytest.fixture(scope="module")
def sites() -> Iterator[tuple[Site, Site]]:
    with two_sites() as found:
        yield found


def lies(process: Mirror, truth: Truth) -> list[str]:
    """What is not told as it is; nothing may be."""
    health, ready = get(process, "/-/healthy")[0], get(process, "/-/ready")
    scraped, now, page = samples(get(process, "/metrics")[1]), status(process), get(process, "/status")[1]
    found: list[str] = []

    def expect(what: str, told: Any, true: Any) -> None:
        if told != true:
            found.append(f"{what}: {told}, not {true}")

    up = {name: name != truth.away for name in ("source", "destination")}
    expect("healthy", health, 200)
    expect("ready", ready[0], 503 if truth.away else 200)
    expect("cluster_up", {labels["cluster"]: value for labels, value in scraped["mirror_cluster_up"]}, up)
    expect("clusters", {each["cluster"]: each["up"] for each in now["clusters"]}, up)
    expect("ready in the status", now["ready"], not truth.away)
    if truth.away:
        expect("why not ready", truth.away in " ".join(now["not_ready"]), True)
        expect("the page", f"{truth.away} away" in page, True)
    expect("unassigned", now["unassigned_partitions"], truth.unassigned)
    if truth.unassigned:
        expect("in group", [each["joined"] for each in now["workers"]], [False])
    expect("lag", now["lag_records"], truth.waiting)
    lags = [value for _, value in scraped["mirror_replication_lag_records"]]
    expect("lag samples", sum(lags) if len(lags) == PARTITIONS else None, truth.waiting)
    seconds = [value for _, value in scraped["mirror_replication_lag_seconds"]]
    expect("seconds", any(seconds) if len(seconds) == PARTITIONS else None, truth.waiting and truth.waiting > 0)
    if now["partitions"] and truth.waiting is not None:
        progress = process.of("progress")[-1]
        expect("progress", progress["lag_records"], truth.waiting)
    fires = firing(scraped) - {"MirrorPartitionNotLocated"}
    should = {"MirrorClusterAway", "MirrorNotReady"} if truth.away else set()
    expect("alerts", fires, should | ({"MirrorPartitionsUnassigned"} if truth.unassigned else set()))
    return found


def wait_for(process: Mirror, condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """Looks seldom: most of the time here is waiting."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what()}: {process.told()}"
        time.sleep(LOOK_EVERY_S)


def hold(process: Mirror, truth: Truth) -> None:
    """Waits until everything is told as it is, and looks again and again."""
    last: list[str] = []

    def told() -> bool:
        last[:] = lies(process, truth)
        return not last

    wait_for(process, told, lambda: f"{truth}; at last {last}")
    for _ in range(LOOKS):
        time.sleep(LOOK_EVERY_S)
        assert lies(process, truth) == []


def longest_wait(process: Mirror) -> float:
    return max(value for _, value in samples(get(process, "/metrics")[1])["mirror_replication_lag_seconds"])


def told_in_the_log(process: Mirror, which: str) -> None:
    """Both outages, each with its end, in a few lines."""
    assert all(f"cluster {which}" in line["detail"] for line in process.of("waiting"))
    assert [line["event"] for line in process.lines if line["event"].startswith(("waiting", "cluster_"))] == [
        *["waiting"] * len(process.of("waiting")), "waiting_over", "cluster_lost", "cluster_back",
    ]  # fmt: skip
    (lost,), (back,) = process.of("cluster_lost"), process.of("cluster_back")
    assert lost["cluster"] == back["cluster"] == which
    assert back["duration_s"] > 0
    assert not process.of("worker_died")
    assert len([line for line in process.lines if line["event"] != "progress"]) < MOST_LINES


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", ["source", "destination"])
def test_an_outage(
    which: str,
    kind: str,
    sites: tuple[Site, Site],
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    1. The cluster is away when the mirror is started: it waits, is not ready, and says which cluster it is; the alert
       fires. Of lag nothing is said, for nothing is known.
    2. The cluster comes: ready, everything is copied, no alert fires.
    3. It goes away while the mirror runs. With the destination away, what is written at the source lags, and the time
       that it waits grows; with the source away, lag is not known, and once the group's session is over, nobody holds
       the partitions. The command line says so by its exit code.
    4. It is back: the rest is copied, every record is counted once, and no alert fires.
    """
    deaf_resolver(tmp_path, monkeypatch)
    source, destination = sites
    site = source if which == "source" else destination
    create_topic(source.direct, topic_name, PARTITIONS)
    produce(source.direct, topic_name, BEFORE, partitions=PARTITIONS)
    config = tmp_path / "mirror.yaml"
    text = config_text(source.bootstrap_servers, destination.bootstrap_servers, [topic_name], top=SELDOM)
    with ExitStack() as stack:
        with site.away(kind):
            process = stack.enter_context(mirror(config, text))
            process.wait_event("listening")
            hold(process, Truth(away=which, waiting=None, unassigned=None))
            if kind == "frozen":
                # Told before the first request to it was over.
                silent = f"{which} bootstrap {site.bootstrap_servers} has not answered Connect for "
                assert [line.startswith(silent) for line in status(process)["not_ready"][-1:]] == [True]
            process.wait_event("waiting")
        hold(process, Truth())
        with site.away(kind):
            if which == "destination":
                produce(source.direct, topic_name, MEANWHILE, partitions=PARTITIONS, seed=1)
                hold(process, Truth(away=which, waiting=MEANWHILE))
                before = longest_wait(process)
                wait_for(process, lambda: longest_wait(process) > before + 1, lambda: "a longer wait")
            else:
                # The group's own client is no Python, and resolves what the mirror's connections do not.
                lost = PARTITIONS if kind != "unresolved" else 0
                hold(process, Truth(away=which, waiting=None, unassigned=lost))
            assert cli(process, config, "status").returncode == 1
        if which == "source":
            produce(source.direct, topic_name, MEANWHILE, partitions=PARTITIONS, seed=1)
        wait_for(process, lambda: status(process)["replicated_records"] >= BEFORE + MEANWHILE, lambda: "every record")
        hold(process, Truth())
        assert status(process)["replicated_records"] == BEFORE + MEANWHILE
        assert cli(process, config, "status").returncode == 0
        errors = samples(get(process, "/metrics")[1])["mirror_request_errors_total"]
        connect = {labels["cluster"] for labels, _ in errors if labels["api"] == "Connect"}
        assert connect == {which}
        assert process.stop() == 0
        told_in_the_log(process, which)
    assert_identical(source.direct, destination.direct, [topic_name], PARTITIONS)
