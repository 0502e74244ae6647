"""A whole cluster is away, before the start and while the mirror runs: what metrics, status, readiness, health, log and
alerts say is what the test knows to be so, at every look."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.service.stage.kafka_side import assert_identical, create_topic, produce
from tests.service.stage.running import PATIENCE_S, Mirror, cli, config_text, get, mirror, status
from tests.service.telemetry.stage.alerts import firing, samples
from tests.service.telemetry.stage.outages import KINDS, Site, deaf_resolver, two_sites

pytestmark = pytest.mark.broker
PARTITIONS = 2
LOOKS = 2
"""Made in a row once all is told as it should be; it must stay so."""
LOOK_EVERY_S = 0.5
MOST_LINES = 120
SELDOM = {"progress.interval.ms": 300}
BEFORE, MEANWHILE = 40, 30
"""Records written: before the mirror is started, and during each outage while it runs or right behind it."""
LATER = {"source": ("stopped", "unresolved"), "destination": ("frozen", "refused")}
"""The outages while the mirror runs. What a kind looks like, its connections see, which are the same for both clusters;
what follows from it is the cluster's. So each kind comes once: at the source the one that ends the membership in the
group and the one that does not. A broker that is frozen on either side, and a killed destination, are also in
``tests/service/runs`` (``test_waiting.py``, ``test_flows.py``)."""


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
    """All outages, each with its end, in a few lines."""
    assert all(f"cluster {which}" in line["detail"] for line in process.of("waiting"))
    assert [line["event"] for line in process.lines if line["event"].startswith(("waiting", "cluster_"))] == [
        *["waiting"] * len(process.of("waiting")), "waiting_over",
        *["cluster_lost", "cluster_back"] * len(LATER[which]),
    ]  # fmt: skip
    assert {line["cluster"] for line in process.of("cluster_lost") + process.of("cluster_back")} == {which}
    assert all(back["duration_s"] > 0 for back in process.of("cluster_back"))
    assert not process.of("worker_died")
    assert len([line for line in process.lines if line["event"] != "progress"]) < MOST_LINES


@contextmanager
def away_in_every_way(site: Site) -> Iterator[Iterator[str]]:
    """The cluster is away until the block is left, first in the one way, then in the next: the next begins before the
    last one ends. Gives the kinds. Frozen comes first, since nothing is known before the first answer is due; stopped
    comes last, since what is stopped cannot be taken out of another state."""
    assert {*KINDS} == {"frozen", "refused", "unresolved", "stopped"}
    with ExitStack() as last:

        def kinds() -> Iterator[str]:
            for kind in ("frozen", "refused", "unresolved", "stopped"):
                with ExitStack() as now:
                    now.enter_context(site.away(kind))
                    last.close()
                    last.push(now.pop_all())
                yield kind

        yield kinds()


@pytest.mark.parametrize("which", ["source", "destination"])
def test_outages(
    which: str, sites: tuple[Site, Site], topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. The cluster is away when the mirror is started, in each of four ways, one after the other: it waits, is not
       ready, and says which cluster it is; the alert fires. Of lag nothing is said, for nothing is known.
    2. The cluster comes: ready, everything is copied, no alert fires.
    3. It goes away while the mirror runs. With the destination away, what is written at the source lags, and the time
       that it waits grows; with the source away, lag is not known, and once the group's session is over, nobody holds
       the partitions. The command line says so by its exit code.
    4. It is back: the rest is copied, every record is counted once, and no alert fires.
    5. The same once more, with another kind of outage.
    """
    deaf_resolver(tmp_path, monkeypatch)
    source, destination = sites
    site = source if which == "source" else destination
    create_topic(source.direct, topic_name, PARTITIONS)
    produce(source.direct, topic_name, BEFORE, partitions=PARTITIONS)
    config, written = tmp_path / "mirror.yaml", BEFORE
    text = config_text(source.bootstrap_servers, destination.bootstrap_servers, [topic_name], top=SELDOM)
    with ExitStack() as stack:
        with away_in_every_way(site) as kinds:
            process: Mirror | None = None
            for kind in kinds:
                process = process or stack.enter_context(mirror(config, text))
                process.wait_event("listening")
                hold(process, Truth(away=which, waiting=None, unassigned=None))
                if kind == "frozen":
                    # Told before the first request to it was over.
                    silent = f"{which} bootstrap {site.bootstrap_servers} has not answered Connect for "
                    assert [line.startswith(silent) for line in status(process)["not_ready"][-1:]] == [True]
                    process.wait_event("waiting")
            assert process is not None
        hold(process, Truth())
        for number, kind in enumerate(LATER[which], start=1):
            with site.away(kind):
                if which == "destination":
                    produce(source.direct, topic_name, MEANWHILE, partitions=PARTITIONS, seed=number)
                    hold(process, Truth(away=which, waiting=MEANWHILE))
                    before = longest_wait(process)
                    wait_for(process, partial(_waits_longer, process, before + 1), lambda: "a longer wait")
                else:
                    # The group's own client is no Python, and resolves what the mirror's connections do not.
                    lost = PARTITIONS if kind != "unresolved" else 0
                    hold(process, Truth(away=which, waiting=None, unassigned=lost))
                assert cli(process, config, "status").returncode == 1
            if which == "source":
                produce(source.direct, topic_name, MEANWHILE, partitions=PARTITIONS, seed=number)
            written += MEANWHILE
            wait_for(process, partial(_has_copied, process, written), lambda: "every record")
            hold(process, Truth())
            assert status(process)["replicated_records"] == written
        assert cli(process, config, "status").returncode == 0
        errors = samples(get(process, "/metrics")[1])["mirror_request_errors_total"]
        connect = {labels["cluster"] for labels, _ in errors if labels["api"] == "Connect"}
        assert connect == {which}
        assert process.stop() == 0
        told_in_the_log(process, which)
    assert_identical(source.direct, destination.direct, [topic_name], PARTITIONS)


def _waits_longer(process: Mirror, than_s: float) -> bool:
    return longest_wait(process) > than_s


def _has_copied(process: Mirror, records: int) -> bool:
    return int(status(process)["replicated_records"]) >= records
