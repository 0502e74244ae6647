"""The shipped rules as promtool sees them: each alert fires when it should, says what it should, and is silent else."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from mirror.cli.configuration import RUNBOOKS
from tests.prometheus.causes import BY_TOPIC, CAUSES, EVERY_S, Cause, Series
from tests.prometheus.tools import tool

RULES = Path(__file__).resolve().parents[2] / "mirror" / "configs" / "alerts.yaml"
HEALTHY_AT_S = range(0, 90 * 60, 60)


def promtool(*arguments: str, text: str | None = None) -> tuple[int, str]:
    """Its exit code, and all that it printed."""
    told = subprocess.run(
        [tool("promtool"), *arguments], input=text, capture_output=True, text=True, check=False, timeout=120
    )
    return told.returncode, told.stdout + told.stderr


@cache
def shipped() -> dict[str, Any]:
    return {rule["alert"]: rule for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"]}


def test_the_rules_are_right() -> None:
    code, told = promtool("check", "rules", "--lint-fatal", str(RULES))
    assert (code, f"{len(shipped())} rules found" in told) == (0, True), told


def test_every_rule_has_what_whoever_is_woken_needs() -> None:
    for name, rule in shipped().items():
        assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"}), name
        assert rule["annotations"].keys() == {"summary", "runbook_url"}, name
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}/{name}.md"


def test_every_alert_has_its_cause() -> None:
    assert [cause.alert for cause in CAUSES] == sorted((each.alert for each in CAUSES), key=list(shipped()).index)
    assert {cause.alert for cause in CAUSES} == shipped().keys()
    assert all(cause.healthy for cause in CAUSES)


def expected(cause: Cause, at_s: int, *, fires: bool) -> dict[str, Any]:
    rule = shipped()[cause.alert]
    alert = {
        "exp_labels": cause.labels | rule["labels"],
        "exp_annotations": {"summary": cause.summary, "runbook_url": rule["annotations"]["runbook_url"]},
    }
    return {"alertname": cause.alert, "eval_time": f"{at_s}s", "exp_alerts": [alert] if fires else []}


def played(series: Series, expectations: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "interval": f"{EVERY_S}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": expectations,
    }


def file_of(cause: Cause) -> dict[str, Any]:
    """promtool's file: when it fires, and that it does not with each of the healthy samples."""
    first = cause.fires_at_s
    looks = [*([expected(cause, first - EVERY_S, fires=False)] if first else []), expected(cause, first, fires=True)]
    if cause.ends_at_s is not None:
        # Until the evaluation before.
        looks.append(expected(cause, cause.ends_at_s - EVERY_S, fires=True))
        looks.append(expected(cause, cause.ends_at_s, fires=False))
    silent = [[expected(cause, at_s, fires=False) for at_s in HEALTHY_AT_S] for _ in cause.healthy]
    return {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{EVERY_S}s",
        "tests": [played(cause.series, looks), *map(played, cause.healthy, silent)],
    }


@pytest.mark.parametrize("cause", [*CAUSES, *BY_TOPIC], ids=lambda cause: cause.alert)
def test_an_alert(cause: Cause, tmp_path: Path) -> None:
    path = tmp_path / f"{cause.alert}.yaml"
    path.write_text(json.dumps(file_of(cause)))
    code, told = promtool("test", "rules", str(path))
    assert (code, "SUCCESS" in told) == (0, True), told


@pytest.mark.parametrize("change", ["cause", "when", "what it says"])
def test_what_promtool_finds_wrong_is_seen(change: str, tmp_path: Path) -> None:
    """A cause that is healthy, an alert that fires later, another text."""
    cause = next(each for each in CAUSES if each.alert == "MirrorLag")
    wrong = {
        "cause": cause._replace(series=cause.healthy[0]),
        "when": cause._replace(fires_at_s=cause.fires_at_s + EVERY_S),
        "what it says": cause._replace(summary="All is well."),
    }[change]
    path = tmp_path / "wrong.yaml"
    path.write_text(json.dumps(file_of(wrong)))
    assert promtool("test", "rules", str(path))[0] == 1
