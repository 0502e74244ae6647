"""deploy/grafana: the committed files are what the code makes, and name nothing that is not there."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from deploy.grafana import generate
from deploy.grafana.panels import limit
from tests.prometheus.exported import exported, exposition, names_in
from tests.prometheus.panels import VALUES, committed, panels, shown
from tests.prometheus.test_rules import promtool

SYNTHETIC = {"up"}
"""Metrics that Prometheus makes (ALERTS has no such name)."""
ASKED_FOR = {
    *("Partitions by state", "Longest wait", "Records that wait", "Records per second", "Bytes per second"),
    *("Failed requests per second", "Hosts up", "Versions", "CPU", "Memory", "File descriptors", "Restarts"),
    *("Requests, 50 % are shorter than", "Requests, 99 % are shorter than", "Record age", "Replication latency"),
    *("Part of the time in pauses", "Shallow", "CPU-seconds per GiB", "CPU and throughput"),
}


def test_the_committed_files_are_what_the_code_makes() -> None:
    made = generate.texts()
    there = {path.name: path.read_text(encoding="utf-8") for path in generate.FOLDER.iterdir()}
    assert there.keys() == made.keys(), "make dashboards"
    assert [name for name, text in made.items() if there[name] != text] == [], "make dashboards"


def test_it_replaces_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path / "dashboards")
    generate.main()
    (tmp_path / "dashboards" / "old.json").write_text("{}")
    generate.main()
    assert {path.name for path in generate.FOLDER.iterdir()} == generate.texts().keys()


def test_every_metric_that_is_named_is_exported() -> None:
    unknown = {each: names_in(each.sent) - exported() - SYNTHETIC for each in shown()}
    assert {each: names for each, names in unknown.items() if names} == {}


def test_every_expression_is_promql(tmp_path: Path) -> None:
    """As recording rules, which promtool parses."""
    rules = [{"record": f"panel:{at}", "expr": each.sent} for at, each in enumerate(shown())]
    path = tmp_path / "expressions.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    code, told = promtool("check", "rules", str(path))
    assert (code, f"{len(rules)} rules found" in told) == (0, True), told
    path.write_text(path.read_text().replace("sum(", "sum((", 1))
    assert promtool("check", "rules", str(path))[0] == 1


def test_expressions_do_without_the_label_partition() -> None:
    """With ``metrics.granularity: topic`` there is none: what is grouped by it is grouped by topic then. Nothing is
    selected, matched or shown by it."""
    for each in shown():
        grouped = re.sub(r"by \([^)]*\)", "", each.expression)
        assert "partition" not in re.sub(r"mirror_\w+", "", grouped), each


def test_dashboards_are_alike() -> None:
    """The data source is a variable everywhere; every variable is one of the dashboard; identities are unique."""
    boards = committed()
    assert {board["uid"] for board in boards.values()} == {name.removesuffix(".json") for name in boards}
    for board in boards.values():
        variables = {f"${each['name']}" for each in board["templating"]["list"]}
        text = json.dumps(board)
        assert {each["uid"] for each in _sources(board)} == {"${datasource}"}
        assert set(re.findall(r"\$(?!__)\w+", text)) <= variables <= VALUES.keys() | {"$datasource"}
        assert max(Counter(panel["id"] for panel in board["panels"]).values()) == 1
        assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels(board))
        for query in (each.expression for each in shown() if each.board == board["uid"]):
            # A rate over an interval of one's own has holes at some zoom. Alerts have theirs.
            assert re.findall(r"rate\([^[]+\[([^\]]+)\]", query) in ([], ["$__rate_interval"] * query.count("rate("))


def _sources(part: object) -> list[dict[str, str]]:
    if isinstance(part, dict):
        own = [part["datasource"]] if isinstance(part.get("datasource"), dict) else []
        return own + [each for value in part.values() for each in _sources(value)]
    return [each for value in part for each in _sources(value)] if isinstance(part, list) else []


def test_what_operators_ask_for_is_there() -> None:
    titles = [panel["title"] for board in committed().values() for panel in panels(board)]
    assert set(titles) >= ASKED_FOR


def test_limits_are_those_of_the_alerts() -> None:
    """Drawn where the rules have them; a rule without one at its end is refused."""
    assert (limit("MirrorLag"), limit("MirrorCpuSaturated"), limit("MirrorRetentionRisk")) == (300, 0.9, 0.5)
    drawn = {
        panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1]["value"]
        for board in committed().values()
        for panel in panels(board)
        if panel["type"] == "timeseries" and "thresholds" in panel["fieldConfig"]["defaults"]
    }
    assert drawn["Longest wait"] == 300
    assert (drawn["CPU"], drawn["File descriptors"], drawn["Restarts"]) == (0.9, 0.8, 3)
    with pytest.raises(ValueError, match="MirrorNothing"):
        limit("MirrorNothing")
    with pytest.raises(ValueError, match="MirrorAbsent"):
        limit("MirrorAbsent")


def test_the_metrics_are_as_prometheus_wants_them() -> None:
    """promtool's linter; on a real mirror's as well (test_real.py)."""
    assert promtool("check", "metrics", text=exposition()) == (0, "")
    code, told = promtool(
        "check", "metrics", text=exposition().replace("mirror_gc_pause_seconds", "mirror_gc_pause_ms")
    )
    assert (code, "mirror_gc_pause_ms" in told) == (3, True)
