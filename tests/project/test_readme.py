"""What the README and docs/OPERATING.md show is there: every command, make target, configuration and link to a file."""

import re
import tomllib
from pathlib import Path

import pytest

from mirror.service.config import load
from tests.shown import console, cut_off, inline, parse

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OPERATING = (ROOT / "docs" / "OPERATING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
CONSOLE = console(README)
CONSOLE = [["mirror", *words[1:]] if words[0] == ".venv/bin/mirror" else words for words in CONSOLE]
"""Where it is after ``make setup``, or after the two commands that install it alone."""
INLINE = inline(README + OPERATING)
COMMANDS = CONSOLE + INLINE + [words for words in console(OPERATING) if words[0] == "mirror"]


def test_it_shows_commands() -> None:
    assert ["make", "demo"] in CONSOLE
    assert ["make", "test"] in CONSOLE
    assert {words[0] for words in CONSOLE} <= {"make", "mirror", "python3", ".venv/bin/pip"}
    assert len(COMMANDS) > 8


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] == "make"], ids=" ".join)
def test_make_targets_exist(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in words[1:]:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] == "mirror"], ids=" ".join)
def test_commands_exist_and_take_their_options(words: list[str]) -> None:
    parse(words)


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name
)
def test_flows_are_quoted_as_a_shell_needs_it(path: Path) -> None:
    """Without quotes, ``west->east`` writes into a file."""
    assert cut_off(path.read_text(encoding="utf-8")) == []


def test_it_says_how_to_install_it() -> None:
    """Into ``.venv``, by make or by hand; the extra that the audit needs is one."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "VENV := .venv\n" in makefile
    assert ["python3", "-m", "venv", ".venv"] in CONSOLE
    assert [".venv/bin/pip", "install", "."] in CONSOLE
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"mirror": "mirror.cli:main"}
    extras = set(re.findall(r"\.\[(\w+)\]", README))
    assert extras == {"audit", "otlp"} <= project["optional-dependencies"].keys()


def test_its_configuration_is_valid(tmp_path: Path) -> None:
    """The first one is whole; the others show a cluster and a flow of it with more keys, and several flows."""
    text, secured, several, moving = [text for kind, text in BLOCKS if kind == "yaml"]
    path = tmp_path / "mirror.yaml"
    path.write_text(several, encoding="utf-8")
    flows = {flow.name: flow.settings for flow in load(path).enabled_flows()}
    assert [(name, flow.workers) for name, flow in flows.items()] == [
        *(("west->hub", 0), ("east->hub", 2), ("west->east", 0), ("east->west", 0))
    ]
    assert flows["west->east"].selection.destination_of("orders") == "west.orders"
    assert not flows["west->east"].selects("east.orders")
    path.write_text(text, encoding="utf-8")
    flow = load(path).enabled_flow()
    assert flow.settings.selects("payments.eu")
    assert not flow.settings.selects("payments")
    path.write_text(text.partition("flows:")[0] + moving, encoding="utf-8")
    assert load(path).enabled_flow().settings.sync_group_offsets_enabled
    for name in ("west-ca.pem", "west-password"):
        (tmp_path / name).write_text("-", encoding="utf-8")
    west = re.sub(r"/\S+/(west-[\w.-]+)", rf"{tmp_path}/\1", secured.partition("  west:")[2])
    path.write_text(re.sub(r"  west: .*", lambda _: f"  west:{west.rstrip()}", text, count=1), encoding="utf-8")
    assert load(path).enabled_flow().source.security.protocol == "SASL_SSL"


def test_its_links_lead_to_files() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target
