"""The README is short; how to install it, its configuration and its links are right. So are the configurations that the
guide shows. (``test_commands.py`` has the commands.)"""

import re
import tomllib
from pathlib import Path

from mirror.service.config import load
from tests.shown import console

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "GUIDE.md").read_text(encoding="utf-8")
CONSOLE = console(README)
LINES, WORDS = 300, 3_200
"""About ten minutes of reading, tables included."""


def yaml_of(text: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


def test_it_is_read_in_ten_minutes() -> None:
    """What does not fit belongs into the documents that it links to."""
    assert README.count("\n") <= LINES
    assert len(README.split()) <= WORDS


def test_its_two_commands() -> None:
    assert ["make", "demo"] in CONSOLE
    assert ["make", "test"] in CONSOLE
    assert {words[0] for words in CONSOLE} <= {"make", "mirror", "python3", ".venv/bin/pip", ".venv/bin/mirror"}


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


def test_the_configurations_are_valid(tmp_path: Path) -> None:
    """The README's is whole; the guide's show a cluster and a flow of it with more keys, and several flows."""
    (text,) = yaml_of(README)
    secured, starting, several, moving = yaml_of(GUIDE)
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
    path.write_text(text.partition("flows:")[0] + starting, encoding="utf-8")
    assert load(path).enabled_flow().settings.start_from.startswith("2026-")
    for name in ("west-ca.pem", "west-password"):
        (tmp_path / name).write_text("-", encoding="utf-8")
    west = re.sub(r"/\S+/(west-[\w.-]+)", rf"{tmp_path}/\1", secured.partition("  west:")[2])
    path.write_text(re.sub(r"  west: .*", lambda _: f"  west:{west.rstrip()}", text, count=1), encoding="utf-8")
    assert load(path).enabled_flow().source.security.protocol == "SASL_SSL"
