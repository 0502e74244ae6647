"""Partitions that an operator pauses: which workers are asked, what is shown meanwhile, and a restart."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from mirror.cli import main
from mirror.sandbox import SandboxCluster
from mirror.service.commands import Commands
from mirror.service.http import client
from mirror.service.http.routes import Pages
from mirror.service.resume.resumption import Resumed, ResumeOutcome
from mirror.service.telemetry.readiness import remarks, unready
from mirror.service.telemetry.status import as_text
from tests.service.config.loading import base
from tests.service.http.asking import asked
from tests.service.resume.test_resumption import Workers, row
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.running import Mirror, cli, config_text, get, mirror, status
from tests.service.telemetry.stage import rows
from tests.service.telemetry.stage.fleets import fleet, sample, snapshot, told

HELD = {
    1: [row("orders", 0, "halted"), row("users", 0, "paused")],
    2: [row("orders", 1, "active"), row("orders", 3, "locating")],
}
"""By worker; orders-2 is on another machine."""


async def test_who_is_asked() -> None:
    """All of them, also those at rest: a halt may end by itself, and the outcome says so of one that does not."""
    workers = Workers(HELD)
    found = await workers.resumption.pause("orders", None)
    assert found == Resumed([ResumeOutcome("orders", index, "") for index in (0, 1, 3)], [("orders", 2)])
    assert await workers.resumption.pause("orders", 0) == Resumed([ResumeOutcome("orders", 0, "")], [])
    assert [each for each in workers.asked if each[1] == "pause"] == [
        (1, "pause", [("orders", 0)]),
        (2, "pause", [("orders", 1), ("orders", 3)]),
        (1, "pause", [("orders", 0)]),
    ]


async def test_what_is_paused_is_resumed_with_the_halted() -> None:
    workers = Workers(HELD)
    await workers.resumption.resume(None, None, ())
    assert [each for each in workers.asked if each[1] == "resume"] == [(1, "resume", [("orders", 0), ("users", 0)])]


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [(("orders", "1"), {}, 200), ((), {}, 200), (("orders", "9"), {}, 404), ((), {"accept_gap": "true"}, 400)],
)
async def test_over_http(path: tuple[str, ...], query: dict[str, str], code: int) -> None:
    flow = SimpleNamespace(name="a->b", resumption=Workers(HELD).resumption)
    served: Any = SimpleNamespace(flows={"a->b": flow}, commands=Commands())
    answer = await asked(Pages(served), "POST", f"{'/'.join(('/api/v1/partitions', *path))}/pause?{urlencode(query)}")
    assert answer.status == code
    assert ("error" in answer.data) is (code != 200)


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Resumed([ResumeOutcome("t", 0, ""), ResumeOutcome("t", 1, "not yet")], [])
    monkeypatch.setattr(client, "pause", lambda *_, **__: found)
    config = tmp_path / "mirror.yaml"
    config.write_text(base())
    result = CliRunner().invoke(main, ["pause", "-c", str(config), "t"])
    assert (result.exit_code, result.stdout, result.stderr) == (2, "t-0 is paused\n", "t-1 is not paused: not yet\n")


def test_what_is_shown() -> None:
    """It is no halt, and no reason not to be ready; but a remark, so that nobody forgets it. Its age is not told."""
    found = fleet(1)
    resting: dict[str, Any] = {"state": "paused", "lag_records": 5}
    found.heard(1, snapshot(rows.row(**resting), rows.row(partition=1, lag_records=0)))
    assert unready(found, started=True) == []
    assert remarks(found) == ["paused by an operator until they are resumed: t-0"]
    assert not found.halted
    assert sample(found, "mirror_replication_lag_records", partition="0") == 5
    assert sample(found, "mirror_replication_lag_seconds", partition="0") is None
    assert sample(found, "mirror_partition_halted") is None
    assert sample(found, "mirror_partitions", state="paused") == 1
    assert "1 active, 1 paused" in as_text(told(found))
    found.heard(1, snapshot(*(rows.row(partition=index, **resting) for index in range(8))))
    assert unready(found, started=True) == []
    (remark,) = remarks(found)
    assert remark.endswith(": t-0, t-1, t-2, t-3, t-4 and 3 more")
    found.heard(
        1,
        snapshot(rows.row(state="halted", reason="r"), *(rows.row(partition=each, **resting) for each in range(1, 8))),
    )
    assert unready(found, started=True) == ["every partition here is halted (1, 7 paused)"]


@pytest.mark.broker
def test_over_a_restart(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. One of two partitions is paused: the other one goes on, nothing is halted, and the mirror is ready.
    2. The mirror is started anew: it is paused still. `mirror status` shows it, with exit code 0.
    3. Resumed: what has come meanwhile is copied.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config = tmp_path / "mirror.yaml"
    create_topic(source, topic_name, 2)
    produce(source, topic_name, 20, partitions=2)
    text = config_text(source, destination, [topic_name])

    def lags(process: Mirror) -> dict[int, int | None]:
        return {each["partition"]: each["lag_records"] for each in status(process)["partitions"]}

    with mirror(config, text) as process:
        process.wait_for(lambda: lags(process) == {0: 0, 1: 0}, "both to be copied")
        paused = cli(process, config, "pause", topic_name, "0")
        assert (paused.returncode, paused.stdout, paused.stderr) == (0, f"{topic_name}-0 is paused\n", "")
        process.wait_event("paused", topic=topic_name, partition=0)
    produce(source, topic_name, 20, partitions=2, seed=1)
    with mirror(config, text) as process:
        process.wait_for(lambda: status(process)["states"] == {"active": 1, "paused": 1}, "the states of before")
        process.wait_for(lambda: lags(process).get(1) == 0, "the other one to be copied")
        assert get(process, "/-/ready")[0] == 200
        assert f"paused by an operator until they are resumed: {topic_name}-0" in get(process, "/-/ready")[1]
        shown = cli(process, config, "status")
        assert (shown.returncode, "paused" in shown.stdout) == (0, True)
        assert not process.of("halted")
        resumed = cli(process, config, "resume", "--all")
        assert (resumed.returncode, resumed.stdout) == (0, f"{topic_name}-0 is resumed\n")
        process.wait_for(lambda: lags(process) == {0: 0, 1: 0}, "all to be copied")
