"""``mirror offsets`` on the command line: shapes, exit codes, and a flow or a sub-command behind it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mirror.cli import main
from mirror.net.errors import Unreachable
from mirror.service.offsets import show, translate
from mirror.service.offsets.ends import Missing
from mirror.service.offsets.mirrormaker import TakeOver
from mirror.service.sync.plan import GroupState
from mirror.service.sync.settings import SyncSettings
from tests.service.config.loading import base
from tests.service.cutover.worlds import group, row
from tests.service.offsets.test_show import shown


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mirror.yaml"
    path.write_text(base())
    return path


def call(config: Path, *options: str, words: tuple[str, ...] = ()) -> Result:
    return CliRunner().invoke(main, ["offsets", *words, "-c", str(config), *options])


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What it finds; and, as ``settings``, by which groups are selected."""
    data = shown([row(copied=4)], [group()])
    asked: dict[str, Any] = {"data": data}

    async def offsets(_: object, settings: SyncSettings) -> dict[str, Any]:
        asked["settings"] = settings
        if "error" in asked:
            raise asked["error"]
        return dict(asked["data"])

    monkeypatch.setattr(show, "offsets", offsets)
    return asked


def test_shapes(config: Path, found: dict[str, Any]) -> None:
    """With or without the name of the sub-command; the table has the commands as they are typed."""
    assert json.loads(call(config, "--format", "json").stdout) == found["data"]
    assert "lag: 6\n" in call(config, "--format", "yaml").stdout
    for words in ((), ("show",)):
        table = call(config, words=words).stdout
        assert "copied to" in table
        assert f" sync -c {config} --flow 'source->destination'`" in table


def test_groups(config: Path, found: dict[str, Any]) -> None:
    """One that is named is selected whatever the configuration says, and no other; one without offsets is told."""
    assert call(config, "--group", "billing").exit_code == 0
    assert found["settings"].selects("billing")
    assert not found["settings"].selects("billings")
    found["data"] = shown([row()], [group()], absent={"a.b": "no group of this name at west"})
    assert call(config).exit_code == 0
    result = call(config, "--group", "a.b", "--group", "billing")
    assert result.exit_code == 1
    assert "\ngroup a.b: no group of this name at west\n" in result.stdout
    assert found["settings"].named == ["a.b", "billing"]
    assert found["settings"].selects("a.b")
    assert not found["settings"].selects("axb")
    own = "mirror-source->destination"
    result = call(config, "--group", own)
    assert (result.exit_code, result.stderr) == (1, f"the mirror's own group, which is never carried over: {own}\n")


def test_what_is_not_known(config: Path, found: dict[str, Any]) -> None:
    found["data"] = shown([row(why="no leader")], [])
    assert call(config).exit_code == 1
    found["data"] = shown([row()], [], missing=[Missing("hidden", "why")])
    assert call(config).exit_code == 1
    found["data"] = shown([row()], [], missing=[Missing("retired", "why", gone=True)])
    assert (call(config).exit_code, "not looked at: retired: why" in call(config).stdout) == (0, True)
    found["data"] = shown([row()], [group()], unlisted="broker 2 of west: no answer; see to it")
    assert call(config).exit_code == 1
    assert "\nbroker 2 of west: no answer; see to it\n" in call(config).stdout
    for state in GroupState:
        found["data"] = shown([row()], [group(state=state, why="it does not answer")])
        assert call(config).exit_code == (state in (GroupState.FAILED, GroupState.UNSUPPORTED))
    found["error"] = Unreachable("cluster west: nobody answers")
    result = call(config)
    assert (result.exit_code, result.stderr) == (1, "cluster west: nobody answers\n")


@pytest.mark.parametrize("options", [(), ("--apply",), ("--apply", "--allow-rewind"), ("--allow-rewind",)])
def test_translating_a_group(config: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The options go as far as what commits; those for groups are refused with a single offset."""
    asked: list[dict[str, Any]] = []

    async def translate_group(_: object, group: str, *, tell: object, **how: bool) -> str:
        asked.append(how)
        return "done"

    monkeypatch.setattr(translate, "translate_group", translate_group)
    assert call(config, "--group", "billing", *options, words=("translate",)).stdout == "done\n"
    assert asked == [{"apply": "--apply" in options, "allow_rewind": "--allow-rewind" in options}]
    if options:
        assert call(config, "--topic", "t", "--offset", "1", *options, words=("translate",)).exit_code == 64


def test_a_partition_of_a_group(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a group's partitions are translated: whoever names one is told so, and nothing is committed. Without one,
    an offset is that of partition 0."""
    result = call(config, "--group", "billing", "--partition", "3", "--apply", words=("translate",))
    assert result.exit_code == 64
    assert "--partition is for --topic and --offset: of a group, all partitions are translated" in result.output
    asked: list[Any] = []

    async def translate_offset(_: object, topic: str, partition: int, offset: int, **__: bool) -> str:
        asked.append((topic, partition, offset))
        return "done"

    monkeypatch.setattr(translate, "translate_offset", translate_offset)
    for options in ((), ("--partition", "0"), ("--partition", "3")):
        assert call(config, "--topic", "t", "--offset", "1", *options, words=("translate",)).exit_code == 0
    assert asked == [("t", 0, 1), ("t", 0, 1), ("t", 3, 1)]


def test_taking_over_where_a_cluster_does_not_answer(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to do is told as it has to be typed here."""
    config.write_text(base(flow="offsets: mapped\n    start.from: committed\n    start.group: g"))

    async def look(_: object) -> None:
        raise Unreachable("nobody answers; `mirror plan` says more")

    async def entered(self: TakeOver) -> TakeOver:
        return self

    monkeypatch.setattr(TakeOver, "__aenter__", entered)
    monkeypatch.setattr(TakeOver, "look", look)
    result = call(config, words=("take-over",))
    assert (result.exit_code, result.stderr.endswith(f" plan -c {config}` says more\n")) == (1, True)


def test_a_flow_that_is_not_there(config: Path) -> None:
    result = call(config, "nope")
    assert (result.exit_code, "there is no flow nope" in result.output) == (64, True)
    assert "translate" in CliRunner().invoke(main, ["offsets", "--help"]).output


def test_several_flows(config: Path) -> None:
    """One has to be named, and how to name it is told."""
    config.write_text(base(top='  "destination->source":\n    topics: [users]'))
    result = call(config)
    assert result.exit_code == 64
    assert "2 flows are enabled: name one of them, as FLOW (source->destination, destination->source)" in result.output
