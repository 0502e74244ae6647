"""docs/runbooks: a page for each alert and none without; what the pages and the rules name is there."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mirror.cli import main
from mirror.cli.configuration import RUNBOOKS
from mirror.service.exits import EXIT_USAGE
from tests.prometheus.exported import exported, exposition, names_in
from tests.prometheus.test_rules import shipped
from tests.shown import console, inline, parse

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "runbooks"
INDEX = FOLDER / "README.md"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")) if path != INDEX}
PARTS = ["What it means.", "If nobody acts.", "Look:", "Do:", "It ends"]
OTHERS = {
    *("curl", "grep", "tail", "pgrep", "ps", "top", "head", "dmesg", "ls", "wc", "python3", "openssl", "getent"),
    *("kafka-configs", "kafka-topics", "kafka-consumer-groups"),
}
"""What a host with a mirror and Kafka's tools has."""
PATHS = ("/metrics", "/-/healthy", "/-/ready", "/api/v1/status")


def test_a_page_for_each_alert_and_none_without() -> None:
    assert PAGES.keys() == shipped().keys()
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \|", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(name, name) for name in shipped()] == rows


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_all_its_parts(name: str) -> None:
    text = PAGES[name]
    assert text.startswith(f"# {name}\n\n")
    assert re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE) == PARTS
    assert console(text)


@pytest.mark.parametrize("name", PAGES)
def test_its_commands_can_be_pasted(name: str) -> None:
    """Commands of ours with options that they have, pages that the mirror serves, lines that it logs."""
    text = PAGES[name]
    ours = [words for words in [*console(text), *inline(text)] if words[0] == "mirror"]
    for words in ours:
        parse(words[: words.index("|")] if "|" in words else words)
    piped = [part.split()[0] for words in console(text) for part in re.split(r" \| ", " ".join(words))]
    assert {program for program in piped if program != "mirror"} <= OTHERS
    for path in re.findall(r"127\.0\.0\.1:9464(\S+)", text):
        assert path in PATHS
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "mirror").rglob("*.py"))
    for events in re.findall(r'"event": "\(?([a-z_|]+)\)?"', text):
        for event in events.split("|"):
            assert f'"{event}"' in code, event


@pytest.mark.parametrize("name", PAGES)
def test_metrics_that_are_named_are_exported(name: str) -> None:
    rule = shipped()[name]
    assert names_in(rule["expr"]) - {"up"} <= exported()
    for pattern in re.findall(r"/metrics \| grep -E '([^']+)'", PAGES[name]):
        # Which labels it asks for depends on what has happened.
        assert re.search(pattern.split(".*")[0], exposition()), pattern
    for named in re.findall(r"\b(?:mirror|process)_\w+", PAGES[name]):
        assert any(known.startswith(named) for known in exported()), named


@pytest.mark.parametrize("wrong", ["mirror_nothing", "process_nothing_total"])
def test_a_metric_that_is_not_exported_is_seen(wrong: str) -> None:
    assert names_in(f'sum by (topic) (rate({wrong}{{job="x"}}[5m])) > 0 and mirror_ready == 1') - exported() == {wrong}


def test_the_runbooks_address_is_the_operators() -> None:
    printed = CliRunner().invoke(main, ["config", "alerts", "--runbooks", "https://wiki.company/kafka/"])
    assert printed.exit_code == 0
    found = re.findall(r"^ +runbook_url: (.+)$", printed.output, re.MULTILINE)
    assert found == [f"https://wiki.company/kafka/{name}.md" for name in shipped()]
    assert RUNBOOKS not in printed.output
    plain = CliRunner().invoke(main, ["config", "alerts"]).output
    assert [line for line in plain.splitlines() if "runbook_url: " not in line] == [
        line for line in printed.output.splitlines() if "runbook_url: " not in line
    ]


@pytest.mark.parametrize("wrong", ["wiki.company", "ftp://wiki", "https://wiki/{{ x }}", "https://wiki/a b", ""])
def test_an_address_that_is_none(wrong: str) -> None:
    assert CliRunner().invoke(main, ["config", "alerts", "--runbooks", wrong]).exit_code == EXIT_USAGE
