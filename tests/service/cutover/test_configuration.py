"""The configuration of the flow back: the same file, turned round."""

from pathlib import Path

import pytest

from mirror.service.config import load
from mirror.service.cutover.configuration import NotConfigured, prepared, reverse_path, reversed_text
from tests.service.cutover.worlds import row

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

ROWS = [row(0), row(1)]
"""Of orders."""


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
    assert prepared(path, into, "west->east", "east->west", ROWS)() == str(into)
    (back,) = load(into).enabled_flows()
    (forth,) = load(path).enabled_flows()
    assert (back.name, back.id, back.settings.group_id) == ("east->west", "east->west", "")
    assert back.settings.topics == forth.settings.topics
    assert back.settings.buffer_memory == forth.settings.buffer_memory == 16 << 20
    text = into.read_text()
    assert '"${file:secret}"' in text
    assert "# ours" in text
    assert into.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("keys", [{"start.from": "latest"}, {"start.from": "committed", "start.group": "g"}])
def test_where_the_flow_back_begins(keys: dict[str, str]) -> None:
    """Never where ``start.from`` says. A partition that was empty at the cutover has no pin: with latest, what came
    between the cutover and ``--reverse`` would be left out."""
    more = "".join(f"    {key}: {value}\n" for key, value in keys.items())
    text = reversed_text(TEXT + more, "west->east", "east->west")
    forth, back = text.split("west->east")[1].split("east->west")
    assert "start." in forth
    assert "start." not in back


def test_and_round_again(path: Path) -> None:
    """A flow that was there before keeps its settings, and gets the id that is free."""
    text = reversed_text(TEXT, "west->east", "east->west")
    path.write_text(reversed_text(text, "east->west", "west->east.2"))
    (flow,) = load(path).enabled_flows()
    assert (flow.name, flow.id) == ("west->east", "west->east.2")
    assert path.read_text().count('west->east"') == 1


def test_what_cannot_be_turned(path: Path) -> None:
    with pytest.raises(NotConfigured, match="is the configuration that is read"):
        prepared(path, path, "west->east", "east->west", ROWS)
    with pytest.raises(NotConfigured, match="a->b cannot be found"):
        reversed_text(TEXT, "a->b", "b->a")
    with pytest.raises(NotConfigured, match=r"no/x\.yaml cannot be written"):
        prepared(path, path.parent / "no" / "x.yaml", "west->east", "east->west", ROWS)


def test_one_that_would_be_wrong(path: Path) -> None:
    """Nothing is written, and what was there stays. Lines are told by the name that the file would have."""
    into = path.parent / "x.yaml"
    with pytest.raises(NotConfigured) as caught:
        prepared(path, into, "west->east", "a b c", ROWS)
    assert str(caught.value).startswith(
        f"the configuration of the flow back would be wrong, so it is not written: {into}:"
    )
    assert "flow.id" in str(caught.value)
    assert {each.name for each in path.parent.iterdir()} == {"m.yaml", "secret"}


def test_a_file_that_is_there(path: Path) -> None:
    """The same once more is fine; one that somebody has edited stays as it is, until it is moved away."""
    into = reverse_path(path)
    for _ in range(2):
        write = prepared(path, into, "west->east", "east->west", ROWS)
        assert write() == str(into)
    edited = into.read_text().replace("16MiB", "32MiB")
    into.write_text(edited)
    told = (
        f"{into} is there, and is not what would be written: it was edited, or is of another cutover. Move it away, or "
        "name another file with --config-out"
    )
    with pytest.raises(NotConfigured) as caught:
        prepared(path, into, "west->east", "east->west", ROWS)
    assert str(caught.value) == told
    into.unlink()
    write = prepared(path, into, "west->east", "east->west", ROWS)
    into.write_text(edited)  # while the beginning is written down
    with pytest.raises(NotConfigured, match="is there, and is not what would be written"):
        write()
    assert into.read_text() == edited


BACK = """\
  "east->west":
    topics: [TOPICS]
    flow.id: other
    MORE
"""


def both(topics: str, more: str = "") -> str:
    """The file with a flow the other way, too."""
    return TEXT + BACK.replace("TOPICS", topics).replace("MORE", more)


@pytest.mark.parametrize(
    ("topics", "more", "told"),
    [
        ("users", "", "does not copy orders into orders"),
        ("users", "enabled: false", "does not copy orders into orders"),
        ("orders", "enabled: false\n    offsets: mapped", "has offsets: mapped, and not exact"),
        (
            "orders",
            "enabled: false\n    isolation.level: read_uncommitted",
            "has isolation.level: read_uncommitted, and not read_committed",
        ),
        (
            "orders",
            "enabled: false\n    isolation.level: read_uncommitted\n    identity: strict",
            "has identity: strict, and not stamped",
        ),
    ],
)
def test_a_flow_back_that_copies_something_else(path: Path, topics: str, more: str, told: str) -> None:
    """A flow of that name was there before. What was cut over would be copied back by nobody, or differently."""
    path.write_text(both(topics, more))
    with pytest.raises(NotConfigured) as caught:
        prepared(path, reverse_path(path), "west->east", "east->west" if more else "other", ROWS)
    assert "flow east->west " in str(caught.value)
    assert told in str(caught.value)
    assert {each.name for each in path.parent.iterdir()} == {"m.yaml", "secret"}


def test_a_flow_back_that_runs_already(path: Path) -> None:
    """It keeps its ids, so the beginning has to be written down for these."""
    path.write_text(both("orders"))
    into = reverse_path(path)
    with pytest.raises(NotConfigured, match=r"flow east->west is enabled with flow.id other, and .* east->west\.2"):
        prepared(path, into, "west->east", "east->west.2", ROWS)
    prepared(path, into, "west->east", "other", ROWS)()
    (back,) = load(into).enabled_flows()
    assert back.id == "other"
