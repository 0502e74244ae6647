"""Which groups are kept in step, and what the principal may do with them; without a cluster. (On real brokers:
``tests/service/plan/checks/test_rights.py``.)"""

from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.admin.groups import Groups, Listed, Listing
from mirror.net.errors import Unreachable
from mirror.service.plan.ask import carried as module
from mirror.service.plan.ask.carried import GroupsAsked, groups_asked
from mirror.service.plan.model import GroupFacts, Rights
from mirror.service.sync.settings import SyncSettings
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook

WEST, EAST = SimpleNamespace(name="west"), SimpleNamespace(name="east")
MAY = frozenset({"Describe", "Read"})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Whose rights were asked for, at which cluster. Of "secret" it may do nothing at west; east tells nothing."""
    questions: list[tuple[str, list[str]]] = []

    async def listed(self: Groups) -> Listing:
        names = {"billing": "consumer", "connect-1": "connect", "left-out": "consumer", "own": "consumer"}
        return Listing({name: Listed(name, kind) for name, kind in names.items()}, ())

    async def rights(cluster: Any, names: list[str]) -> dict[str, tuple[Rights | None, bool]]:
        questions.append((cluster.name, names))
        return {
            name: (None, name == "secret")
            if cluster is WEST and name == "secret"
            else (MAY if cluster is WEST else None, False)
            for name in names
        }

    monkeypatch.setattr(Groups, "listed", listed)
    monkeypatch.setattr(module, "groups_rights", rights)
    return questions


async def groups(**settings: Any) -> GroupsAsked:
    west: Any = WEST
    east: Any = EAST
    return await groups_asked(west, east, SyncSettings(**({"offsets": True} | settings)))


async def test_those_that_are_selected(asked: list[tuple[str, list[str]]]) -> None:
    """Those that are listed, and those that are named: these may be hidden."""
    found = await groups(groups=(".*", "secret"), groups_exclude=("left-out",), own_group="own")
    assert found == GroupsAsked((GroupFacts("billing", MAY, None), GroupFacts("secret", frozenset(), None)))
    assert asked == [("west", ["billing", "secret"]), ("east", ["billing", "secret"])]


async def test_not_too_many(asked: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 1)
    found = await groups(groups=(".*", "secret"))
    assert ([each.name for each in found.groups], found.more) == (["billing"], 3)


async def test_what_is_not_enabled(asked: list[tuple[str, list[str]]]) -> None:
    assert await groups(offsets=False) == GroupsAsked()
    assert await groups(groups=("nobody.+",)) == GroupsAsked()
    assert asked == []


async def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(self: Groups) -> Listing:
        raise Unreachable("nobody answers")

    monkeypatch.setattr(Groups, "listed", listed)
    assert await groups() == GroupsAsked(unknown="groups of west: nobody answers")
