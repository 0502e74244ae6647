"""What the process says: what is in the way once, and now and then; what it has done as a number."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from mirror.service.channel import Channel, ChannelLog
from mirror.service.commands import Commands
from mirror.service.config import resolve
from mirror.service.sync.look import Sync
from mirror.service.sync.plan import GroupPlan, GroupsPlan, GroupState
from mirror.service.sync.process import AGAIN_S, FAILED, NAMED, OK, Syncing, Trouble, _told
from tests.service.config.loading import Load, base


class Said(Channel):
    """A channel that keeps what is said."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: object) -> None:
        self.messages.append({"kind": kind, **fields})

    def taken(self) -> list[tuple[Any, ...]]:
        """(event, detail, remedy) of each line since the last time."""
        lines, self.messages = self.messages, []
        return [(each["event"], each["fields"].get("detail"), each["fields"].get("remedy")) for each in lines]


@pytest.fixture
def said() -> Said:
    return Said()


def test_trouble(said: Said) -> None:
    """Said once when it begins, again after ten minutes, and once when it is over; another kind is said at once."""
    now = [0.0]
    trouble = Trouble(ChannelLog(said), "not_synced", "groups", clock=lambda: now[0])
    trouble.look([])
    assert said.taken() == []
    trouble.look([("a", "a at 1", "do this"), ("a", "a at 2", "do this")])
    assert said.taken() == [("not_synced", "a at 1", "do this")]
    now[0] += AGAIN_S / 2
    trouble.look([("a", "a at 3", "do this"), ("b", "b", "")])
    assert said.taken() == [("not_synced", "b", None)]
    now[0] += AGAIN_S / 2
    trouble.look([("a", "a at 4", "do this"), ("b", "b", "")])
    assert said.taken() == [("not_synced", "a at 4", "do this")]
    trouble.look([])
    trouble.look([])
    assert said.taken() == [("sync_back", None, None)]


def test_many_groups_are_a_few_lines() -> None:
    plans = [GroupPlan(group=f"g{number}") for number in range(NAMED + 2)]
    for plan in plans:
        plan.stop(GroupState.FAILED, "why", "remedy")
    told = _told(plans)
    assert told[0] == ("g0 remedy", "group g0: why", "remedy")
    assert [detail for _, detail, _ in told[NAMED:]] == ["2 more groups; `mirror sync --dry-run` shows them all"]
    assert len(_told(plans[:NAMED])) == NAMED
    shown = Commands(config="/etc/mirror.yaml").rendered(told[NAMED][1])
    assert shown == "2 more groups; `mirror sync -c /etc/mirror.yaml --dry-run` shows them all"


class Found:
    """A look that finds these groups."""

    def __init__(self, plan: GroupsPlan) -> None:
        self.plan = plan

    async def groups(self, *, apply: bool) -> GroupsPlan:
        assert apply
        return self.plan


async def test_groups_that_are_not_known(said: Said, tmp_path: Path) -> None:
    """What is known was carried over, and the look has failed: some group may not have been looked at. That nobody has
    committed anything is not said then."""
    config = Load(tmp_path)(base())
    syncing = Syncing(resolve.handover(config.enabled_flow(), config), said)
    unlisted = GroupsPlan(groups=[], failed="broker 2 of west: no answer", remedy="start it")
    assert await syncing._groups(cast(Sync, Found(unlisted))) == FAILED
    assert said.taken() == [("group_offsets_not_synced", "broker 2 of west: no answer", "start it")]
    assert await syncing._groups(cast(Sync, Found(GroupsPlan(groups=[GroupPlan(group="g")])))) == OK
    assert said.taken() == [("sync_back", None, None)]


def test_a_name_that_is_looked_up_for_long() -> None:
    """It ends at once with its channel: a name server that hangs is not waited for."""
    ours, theirs = socket.socketpair()
    code = (
        "import asyncio, os, sys, time; from mirror.service.sync import process\n"
        "async def serve(_):\n"
        "    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)\n"
        "    return 3\n"
        "process._serve = serve\n"
        "process.main(int(sys.argv[1]), os.getppid())"
    )
    with ours, theirs:
        command = [sys.executable, "-c", code, str(theirs.fileno())]
        assert subprocess.run(command, pass_fds=[theirs.fileno()], timeout=60, check=False).returncode == 3
