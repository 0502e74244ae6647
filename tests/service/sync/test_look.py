"""A look at groups of which some are not known. What it does with those that are: ``test_offsets.py``."""

from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.admin.groups import Listed, Listing
from mirror.net.cluster import Cluster
from mirror.net.options import ClusterOptions
from mirror.service.sync.offsets import OffsetsSync
from mirror.service.sync.settings import SyncSettings

ALL = Listing({"connect-1": Listed("connect-1", "connect", "Empty")}, ())
SOME = Listing({}, ("broker 2 of west: no answer", "west: __consumer_offsets-1 has no leader"))


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (ALL, ""),
        (SOME, "not all groups of west are known: broker 2 of west: no answer; "
               "west: __consumer_offsets-1 has no leader"),
    ],
)  # fmt: skip
async def test_a_broker_that_does_not_list_its_groups(here: Listing, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, with what to do; at the destination, it does not matter."""
    flow: Any = SimpleNamespace(aliases=("west", "east"), selection=SimpleNamespace(renames=False))
    west, east = (Cluster(name, ClusterOptions(bootstrap=())) for name in flow.aliases)
    translator: Any = SimpleNamespace(source=west, destination=east, exact=True)
    offsets = OffsetsSync(flow, SyncSettings(), translator)

    async def nothing(*_: object) -> None:
        """Instead of a look at the copies."""

    async def listed(found: Listing) -> Listing:
        return found

    monkeypatch.setattr(offsets._copies, "renew", nothing)
    monkeypatch.setattr(offsets._copies, "look", nothing)
    monkeypatch.setattr(offsets._here, "listed", lambda: listed(here))
    monkeypatch.setattr(offsets._there, "listed", lambda: listed(SOME))
    found = await offsets.look(apply=True)
    assert (found.groups, found.failed, bool(found.remedy)) == ([], why, bool(why))
