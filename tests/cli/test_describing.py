"""``mirror describe``: what is known of one topic."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mirror.cli import main
from mirror.cli.describing import as_lines, described
from mirror.relay.stats import GivenUp
from mirror.service.http import client
from tests.service.config.loading import base
from tests.service.telemetry.stage.fleets import NOW_MS, fleet, snapshot, told
from tests.service.telemetry.stage.rows import row


def now() -> Any:
    """Two topics; one partition has halted, and skipped something before."""
    found = fleet(1)
    halted = row("orders", 1, state="halted", reason="corrupt", detail="bad bytes", remedy="mend it", lag_records=7)
    skipped = (
        GivenUp("orders", 1, 10, 20, "unexplained_gap", NOW_MS),
        GivenUp("orders", 1, 30, 40, "oversize_dropped", NOW_MS, 3),
        GivenUp("orders", 0, 1, 2, "unexplained_gap", NOW_MS),
    )
    found.heard(1, snapshot(row("orders", 0, lag_records=1_234), halted, row("users"), skipped=skipped))
    return told(found)


def test_one_partition() -> None:
    (one,) = described(now(), "orders", 1)
    assert [(each["first"], each["next"]) for each in one["skipped"]] == [(10, 20), (30, 40)]
    lines = as_lines(one).splitlines()
    assert lines[0] == "orders-1"
    assert "  state:                halted" in lines
    assert "  reason:               corrupt" in lines
    assert "  detail:               bad bytes" in lines
    assert any(line.startswith("  remedy:               mend it") for line in lines)
    assert any("all of offsets 10 to 19, 2023-11-14" in line for line in lines)
    assert any("3 of offsets 30 to 39" in line for line in lines)
    assert not any("waits" in line for line in lines)


def test_a_topic() -> None:
    found = described(now(), "orders", None)
    assert [one["partition"] for one in found] == [0, 1]
    assert "  lag records:          1,234" in as_lines(found[0])
    assert described(now(), "order", None) == []


def test_a_halt_that_nobody_holds_now() -> None:
    """The source is away, and the group gives out nothing: what is known of the halt is still shown."""
    found = fleet(1)
    halted = row("orders", 1, state="halted", reason="corrupt", detail="d", remedy="r")
    found.heard(1, snapshot(halted))
    found.ended(1)
    found.flow_partitions = 2
    (one,) = described(told(found), "orders", 1)
    assert (one["state"], one["reason"]) == ("halted, held by nobody now", "corrupt")
    assert "orders-1\n" in as_lines(one)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["orders"], 2, "orders-0\n"),
        (["orders", "0"], 0, "orders-0\n"),
        (["orders", "9"], 1, "no worker here has orders-9"),
        (["none"], 1, "no worker here has none;"),
    ],
)
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, said: str
) -> None:
    config = tmp_path / "mirror.yaml"
    config.write_text(base())
    monkeypatch.setattr(client, "fetch_status", lambda *_, **__: now())
    result = CliRunner().invoke(main, ["describe", "-c", str(config), *arguments])
    assert (result.exit_code, said in result.output) == (code, True)
    if code != 1:
        shown = CliRunner().invoke(main, ["describe", "-c", str(config), *arguments, "--format", "json"])
        assert json.loads(shown.output)[0]["topic"] == "orders"
