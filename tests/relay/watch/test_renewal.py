"""Ids of partitions are used before their coordinator forgets them: which are due, and when."""

from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest

from mirror.net.coordinator import Ownership
from mirror.net.errors import Unsupported
from mirror.relay.outcome import NotOurs
from mirror.relay.partition.partition import Partition
from mirror.relay.watch import renewal
from mirror.relay.watch.renewal import Renewal


def test_what_was_not_used_for_so_long_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """From when it was seen first; another epoch says that it was used. Who has no id uses none."""
    now = [100.0]
    monkeypatch.setattr(renewal, "time", Mock(monotonic=lambda: now[0]))
    one, other, nobody = (Partition("t", index) for index in range(3))
    one.claim.own(Ownership(7, 1))
    other.claim.own(Ownership(8, 1))
    renewing = Renewal(Mock(partitions={("t", each.index): each for each in (one, other, nobody)}))

    def due(at: float) -> list[Partition]:
        now[0] = at
        return renewing._due(10.0)

    assert due(100.0) == []
    other.claim.own(Ownership(8, 2))
    assert due(105.0) == []
    assert due(110.0) == [one]
    one.claim.own(Ownership(7, 2))
    assert due(114.0) == []
    assert due(115.0) == [other]
    assert due(124.0) == [one, other]


async def test_a_coordinator_that_cannot_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a cluster is upgraded to Kafka 2.5, some coordinators can, and others cannot yet: that is logged once, and
    the other ids are used, again and again."""
    old, new = Partition("t", 0), Partition("t", 1)
    log = Mock()
    relay = Mock(partitions={("t", 0): old, ("t", 1): new}, log=log, expiry=SimpleNamespace(ms=1))
    for partition in (old, new):
        partition.claim.own(Ownership(7, 1))
    monkeypatch.setattr(renewal, "transactional_memory_ms", AsyncMock(return_value=1))
    monkeypatch.setattr(Renewal, "_due", lambda self, every_s: [old, new])
    used: list[Partition] = []

    async def renew(self: Renewal, partition: Partition) -> None:
        if partition is old:
            raise Unsupported("InitProducerId version 3")
        used.append(partition)
        if len(used) == 3:
            raise EOFError

    monkeypatch.setattr(Renewal, "renew", renew)
    with pytest.raises(EOFError):
        await Renewal(relay).keep()
    assert used == [new] * 3
    assert [call.kwargs["partition"] for call in log.info.call_args_list] == [old.name]


@pytest.mark.parametrize("meanwhile", ["another replica is fetched from", "it is taken over again"])
async def test_what_is_told_of_an_owner_holds_while_it_is_the_same(meanwhile: str) -> None:
    """The id turns out to be another worker's. Whatever was fetched meanwhile, and from where, that is so; unless the
    partition was taken over here once more."""
    partition = Partition("t", 0)
    partition.claim.own(Ownership(7, 1))
    partition.move("located")

    async def renew(_: Partition) -> None:
        if meanwhile == "it is taken over again":
            partition.claim.own(Ownership(7, 3))
        partition.cursor.follow(2, 60.0)
        raise NotOurs(partition.name)

    relay = Mock(locator=Mock(owners=Mock(renew=renew)))
    await Renewal(relay).renew(partition)
    assert relay.act.called == (meanwhile == "another replica is fetched from")
