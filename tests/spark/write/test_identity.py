"""Identities that tell where a batch stood at the source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.identity import MIRROR_BIT, producer_id, same_owner
from mirror.spark.write.identity import BLOCK, NEAR, Place, Runs
from tests.records.builders import header_of

OFFSETS = st.integers(0, 1 << 50)


def runs(**changes: object) -> Runs:
    named = {"flow": "copy", "cluster_id": "c", "topic": "t", "partition": 0, **changes}
    return Runs(**named)  # type: ignore[arg-type]


def stored(of: Runs, place: Place, **changes: int) -> Place | None:
    """The place that a batch with this identity shows."""
    identity = of.identity(place)
    header = header_of(
        producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=identity.sequence, **changes
    )
    return runs().place(header, near=place.offset)


@given(run=OFFSETS, further=st.integers(0, BLOCK - 1))
def test_an_identity_shows_its_place(run: int, further: int) -> None:
    place = Place(run, min(run + further, run | (BLOCK - 1)))
    assert Runs.goes_on(*place)
    identity = runs().identity(place)
    assert identity.producer_id & MIRROR_BIT
    assert identity.epoch < 1 << 14
    assert 0 <= identity.sequence < BLOCK
    assert stored(runs(), place) == place


@pytest.mark.parametrize("changes", [{"flow": "other"}, {"cluster_id": "d"}, {"topic": "u"}, {"partition": 1}])
def test_others_are_not_recognised(changes: dict[str, object]) -> None:
    assert stored(runs(**changes), Place(3, 7)) is None


def test_what_is_no_data_of_a_run() -> None:
    assert stored(runs(), Place(3, 7), attributes=0x20) is None
    assert runs().place(header_of(), near=0) is None
    late = header_of(producer_id=runs().identity(Place(0, 0)).producer_id, producer_epoch=1 << 14)
    assert runs().place(late, near=0) is None


def test_later_runs_supersede_earlier_ones() -> None:
    """Of one producer id, the epoch goes up."""
    first, second, third = (runs().identity(Place(at, at)) for at in (5, 9, BLOCK))
    assert first.producer_id == second.producer_id
    assert first.epoch < second.epoch
    assert not same_owner(first.producer_id, third.producer_id)
    assert not Runs.goes_on(5, BLOCK)


def test_only_what_is_near_is_recognised() -> None:
    of, place = runs(), Place(0, 0)
    identity = of.identity(place)
    header = header_of(producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=0)
    assert runs().place(header, near=NEAR * BLOCK) == place
    assert runs().place(header, near=(NEAR + 1) * BLOCK) is None


def test_the_daemons_ids_are_others() -> None:
    daemons = producer_id(flow="copy", cluster_id="c", topic="t", partition=0)
    assert runs().place(header_of(producer_id=daemons, producer_epoch=0, base_sequence=0), near=0) is None
