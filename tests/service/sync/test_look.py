"""A look at groups of which some are not known. What it does with those that are: ``test_offsets.py``."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.admin.groups import CommittedOffset, Listed, Listing, Offsets
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused, Unreachable
from mirror.net.options import ClusterOptions
from mirror.service.selection import Selection
from mirror.service.sync import offsets as module
from mirror.service.sync.offsets import OffsetsSync
from mirror.service.sync.plan import GroupsPlan, GroupState
from mirror.service.sync.settings import SyncSettings
from mirror.wire.errors import ErrorCode

ALL = Listing({"connect-1": Listed("connect-1", "connect", "Empty")}, ())
SOME = Listing({}, ("broker 2 of west: no answer", "west: __consumer_offsets-1 has no leader"))


Look = Callable[..., OffsetsSync]


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Look:
    """Makes one that looks at the groups that west lists, with what it says that they have committed. Of all others it
    says that they have nothing. Nothing of them is at east."""

    def made(
        here: Listing,
        committed: dict[str, Offsets | NetworkError] | None = None,
        *,
        rights: Any = None,
        **settings: Any,
    ) -> OffsetsSync:
        flow: Any = SimpleNamespace(aliases=("west", "east"), selection=Selection(("orders",)))
        west, east = (Cluster(name, ClusterOptions(bootstrap=())) for name in flow.aliases)
        translator: Any = SimpleNamespace(source=west, destination=east, exact=True)
        offsets = OffsetsSync(flow, SyncSettings(**settings), translator)

        async def nothing(*_: object) -> None:
            """Instead of a look at the copies."""

        async def said(found: Any) -> Any:
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(offsets._copies, "renew", nothing)
        monkeypatch.setattr(offsets._copies, "look", nothing)
        monkeypatch.setattr(offsets, "_placed", lambda row: row)
        monkeypatch.setattr(offsets._here, "listed", lambda: said(here))
        monkeypatch.setattr(offsets._there, "listed", lambda: said(SOME))
        monkeypatch.setattr(
            offsets._here, "committed", lambda names: said({name: (committed or {}).get(name, {}) for name in names})
        )
        monkeypatch.setattr(offsets._there, "committed", lambda names: said({name: {} for name in names}))
        monkeypatch.setattr(module, "cluster_operations", lambda _: said(rights))
        return offsets

    return made


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (ALL, ""),
        (SOME, "not all groups of west are known: broker 2 of west: no answer; "
               "west: __consumer_offsets-1 has no leader"),
    ],
)  # fmt: skip
async def test_a_broker_that_does_not_list_its_groups(here: Listing, why: str, looking: Look) -> None:
    """It is told, with what to do; at the destination, it does not matter."""
    found = await looking(here).look(apply=True)
    assert (found.groups, found.failed, bool(found.remedy)) == ([], why, bool(why))


async def test_groups_that_are_named(looking: Look) -> None:
    """Of those that are not there, or have nothing to carry over, it is told; one that may not be described is in no
    list, and is asked about. Patterns name nobody."""
    names = ("billing", "biling", "connect-1", "elsewhere", "secret", "left-out", "own")
    listed = {name: Listed(name, "consumer", "Empty") for name in ("billing", "elsewhere", "left-out", "other")}
    denied = Refused("west: OffsetFetch of group secret", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    committed: dict[str, Offsets | NetworkError] = {
        "billing": {("orders", 0): CommittedOffset(5)}, "elsewhere": {("users", 0): CommittedOffset(5)},
        "secret": denied,
    }  # fmt: skip
    for groups in ((*names, "a.*"), (".*",)):
        found = await looking(
            Listing(ALL.groups | listed, ()), committed, groups=groups, groups_exclude=("left-out",), own_group="own",
            names=names if groups == (".*",) else None,
        ).look(apply=False)  # fmt: skip
        assert found.absent == {
            "biling": "no group of this name at west",
            "connect-1": "no committed offsets of topics of the flow at west",
            "elsewhere": "no committed offsets of topics of the flow at west",
        }
        plans = {plan.group: plan for plan in found.groups}
        assert plans.keys() == {"billing", "secret"}
        assert plans["secret"].state is GroupState.FAILED
        assert plans["secret"].remedy == "grant the mirror's principal Describe on group secret at west"


@pytest.mark.parametrize(
    ("rights", "told"),
    [
        (frozenset({"Describe", "Alter"}), False), (frozenset(), True), (None, False),
        (Unreachable("nobody answers"), False),
    ],
)  # fmt: skip
async def test_groups_that_nobody_sees(looking: Look, rights: Any, told: bool) -> None:
    """Brokers leave them out of their lists, unless the principal may describe the cluster."""
    found: GroupsPlan = await looking(ALL, rights=rights).look(apply=False)
    assert found.unseen == (
        "west lists only groups that the mirror's principal may describe, and there may be others: grant it Describe "
        "on the cluster at west to have all of them listed"
        if told
        else ""
    )
