"""The configuration of the flow back: the same file, turned round."""

from pathlib import Path

import pytest

from mirror.service.config import load
from mirror.service.cutover.configuration import NotConfigured, reverse_path, reversed_text, write_reversed

TEXT = """\
clusters:
  west: {bootstrap.servers: "w:9092"}  # ours
  east:
    bootstrap.servers: "e:9092"
    security.protocol: SASL_PLAINTEXT
    sasl.mechanism: PLAIN
    sasl.username: m
    sasl.password: "${file:secret}"
flows:
  "west->east":
    topics: ["orders", "p\\\\..*"]
    flow.id: old
    group.id: mine
    buffer.memory: 16MiB
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("x")
    found = tmp_path / "m.yaml"
    found.write_text(TEXT)
    return found


def test_turned_round(path: Path) -> None:
    """Settings go with it, ids do not; the flow of before is disabled. References and comments stay, paths hold."""
    into = reverse_path(path)
    assert into.name == "m.reverse.yaml"
    assert write_reversed(path, into, "west->east", "east->west") == str(into)
    (back,) = load(into).enabled_flows()
    (forth,) = load(path).enabled_flows()
    assert (back.name, back.id, back.settings.group_id) == ("east->west", "east->west", "")
    assert back.settings.topics == forth.settings.topics
    assert back.settings.buffer_memory == forth.settings.buffer_memory == 16 << 20
    text = into.read_text()
    assert '"${file:secret}"' in text
    assert "# ours" in text
    assert into.stat().st_mode & 0o777 == 0o600


def test_and_round_again(path: Path) -> None:
    """A flow that was there before keeps its settings, and gets the id that is free."""
    text = reversed_text(TEXT, "west->east", "east->west")
    path.write_text(reversed_text(text, "east->west", "west->east.2"))
    (flow,) = load(path).enabled_flows()
    assert (flow.name, flow.id) == ("west->east", "west->east.2")
    assert path.read_text().count('west->east"') == 1


def test_what_cannot_be_turned(path: Path) -> None:
    with pytest.raises(NotConfigured, match="is the configuration that is read"):
        write_reversed(path, path, "west->east", "east->west")
    with pytest.raises(NotConfigured, match="a->b cannot be found"):
        reversed_text(TEXT, "a->b", "b->a")
    with pytest.raises(NotConfigured, match=r"no/x\.yaml cannot be written"):
        write_reversed(path, path.parent / "no" / "x.yaml", "west->east", "east->west")
    with pytest.raises(NotConfigured, match=r"was written, and is wrong: .*flow\.id"):
        write_reversed(path, path.parent / "x.yaml", "west->east", "a b c")
