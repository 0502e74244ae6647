"""``mirror.records.identity``: computed ids lie in their range, differ where their parts differ, and never change."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirror.records.header import SEQUENCES
from mirror.records.identity import MAX_EPOCH, MIRROR_BIT, ROTATIONS, Identity, producer_id, same_owner

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
PARTITIONS = st.integers(0, (1 << 31) - 1)
OWNERS = st.fixed_dictionaries({"flow": NAMES, "cluster_id": NAMES, "topic": NAMES, "partition": PARTITIONS})
Owner = dict[str, str | int]


def id_of(owner: Owner, rotation: int = 0) -> int:
    return producer_id(**owner, rotation=rotation)  # type: ignore[arg-type]


@given(owner=OWNERS, rotation=st.integers(0, ROTATIONS - 1))
def test_an_id_is_a_positive_int64_above_any_that_a_broker_allocates(owner: Owner, rotation: int) -> None:
    number = id_of(owner, rotation)
    assert 1 << 62 <= number < 1 << 63
    assert number & MIRROR_BIT
    assert number & (ROTATIONS - 1) == rotation
    assert number == id_of(owner, rotation)


@given(owner=OWNERS, one=st.integers(0, ROTATIONS - 1), other=st.integers(0, ROTATIONS - 1))
def test_rotations_differ_and_have_one_owner(owner: Owner, one: int, other: int) -> None:
    assert same_owner(id_of(owner, one), id_of(owner, other))
    assert (id_of(owner, one) == id_of(owner, other)) == (one == other)


@given(one=OWNERS, other=OWNERS)
def test_different_owners_have_different_ids(one: Owner, other: Owner) -> None:
    assume(one != other)
    assert not same_owner(id_of(one), id_of(other))


@given(owner=OWNERS, part=st.sampled_from(["flow", "cluster_id", "topic"]), name=NAMES, partition=PARTITIONS)
def test_every_part_counts(owner: Owner, part: str, name: str, partition: int) -> None:
    for changed in ({**owner, part: name}, {**owner, "partition": partition}):
        assert same_owner(id_of(owner), id_of(changed)) == (owner == changed)


def test_parts_do_not_run_into_each_other() -> None:
    """The same letters with other joints, and a topic that ends in a digit, are other owners."""
    owners = [("ab", "c", "t", 1), ("a", "bc", "t", 1), ("", "abc", "t", 1), ("ab", "ct", "", 1), ("ab", "c", "t1", 1)]
    owners += [("ab", "c", "t", 11), ("ab", "c", "t1", 11)]
    ids = {
        producer_id(flow=flow, cluster_id=cluster, topic=topic, partition=partition)
        for flow, cluster, topic, partition in owners
    }
    assert len(ids) == len(owners)


def test_ids_are_for_ever() -> None:
    """A release that computed other ids would not recognise its predecessor's batches: these two may never change."""
    owner: Owner = {
        "flow": "source->destination",
        "cluster_id": "MkU3OEVBNTcwNTJENDM2Qk",
        "topic": "orders",
        "partition": 7,
    }
    assert id_of(owner) == FIRST
    assert id_of(owner, 255) == FIRST | 255


FIRST = 9085440301957120000


def test_many_partitions_collide_nowhere() -> None:
    ids = {producer_id(flow="f", cluster_id="c", topic=f"t{index % 100}", partition=index) for index in range(20_000)}
    assert len(ids) == 20_000


def test_a_foreign_id_has_another_owner() -> None:
    mine = producer_id(flow="f", cluster_id="c", topic="t", partition=0)
    assert not same_owner(mine, -1)
    assert not same_owner(mine, 0)
    assert not same_owner(mine, mine ^ MIRROR_BIT)
    assert not same_owner(mine, mine ^ ROTATIONS)


@pytest.mark.parametrize("rotation", [-1, ROTATIONS, 1 << 40])
def test_a_rotation_out_of_range_is_refused(rotation: int) -> None:
    with pytest.raises(ValueError, match=rf"rotation {rotation} is not in 0\.\.65535"):
        producer_id(flow="f", cluster_id="c", topic="t", partition=0, rotation=rotation)


@given(sequence=st.integers(0, SEQUENCES - 1), records=st.integers(1, SEQUENCES - 1))
def test_sequences_advance_by_offsets_and_wrap(sequence: int, records: int) -> None:
    before = Identity(MIRROR_BIT, 2, sequence)
    after = before.after(records)
    assert (after.producer_id, after.epoch) == (before.producer_id, before.epoch)
    assert 0 <= after.sequence < SEQUENCES
    assert (after.sequence - sequence - records) % SEQUENCES == 0


def test_the_sequence_behind_the_highest_is_zero() -> None:
    assert Identity(MIRROR_BIT, 0, SEQUENCES - 1).after(1).sequence == 0
    assert Identity(MIRROR_BIT, 0, SEQUENCES - 3).after(5).sequence == 2
    assert Identity(MIRROR_BIT, 0, 0).after(SEQUENCES).sequence == 0


@given(sequence=st.integers(0, SEQUENCES - 1), one=st.integers(1, 1 << 20), other=st.integers(1, 1 << 20))
def test_two_steps_are_one(sequence: int, one: int, other: int) -> None:
    identity = Identity(MIRROR_BIT, 0, sequence)
    assert identity.after(one).after(other) == identity.after(one + other)


def test_epochs_fit_their_field_and_leave_a_markers_epoch() -> None:
    assert MAX_EPOCH % 2 == 0, "data carry even epochs"
    assert MAX_EPOCH + 1 < 1 << 15, "a marker's odd epoch behind the last data fits an int16"


def test_markers_and_what_follows_them() -> None:
    """Data carry even epochs, markers odd ones, and each hole begins another."""
    data = Identity(MIRROR_BIT, 4, 77)
    assert data.marker == Identity(MIRROR_BIT, 5, 0)
    assert data.behind_markers() == Identity(MIRROR_BIT, 6, 0)
    assert Identity(MIRROR_BIT, 5, 0).behind_markers() == Identity(MIRROR_BIT, 6, 0), "after a marker that is there"


def test_past_the_last_epoch_the_next_id_begins() -> None:
    mine = producer_id(flow="f", cluster_id="c", topic="t", partition=0, rotation=3)
    assert Identity(mine, MAX_EPOCH - 2, 9).behind_markers() == Identity(mine, MAX_EPOCH, 0)
    last = Identity(mine, MAX_EPOCH, 9)
    assert last.marker == Identity(mine, MAX_EPOCH + 1, 0), "the markers are of the id whose late data they refuse"
    assert last.behind_markers() == last.marker.behind_markers() == Identity(mine + 1, 0, 0)


def test_after_the_last_rotation_the_first_comes_again() -> None:
    mine = producer_id(flow="f", cluster_id="c", topic="t", partition=0, rotation=ROTATIONS - 1)
    following = Identity(mine, MAX_EPOCH, 0).behind_markers()
    assert following == Identity(producer_id(flow="f", cluster_id="c", topic="t", partition=0), 0, 0)
    assert same_owner(following.producer_id, mine)
    assert Identity(mine, MAX_EPOCH + 1, 0).is_before(following)
    assert not following.is_before(Identity(mine, MAX_EPOCH + 1, 0))


@given(rotation=st.integers(0, ROTATIONS - 1), holes=st.integers(1, 5), epoch=st.integers(0, MAX_EPOCH // 2))
def test_later_identities_are_behind(rotation: int, holes: int, epoch: int) -> None:
    begun = Identity(MIRROR_BIT | rotation, 2 * epoch, 9)
    later = begun
    for _ in range(holes):
        assert later.is_before(later.marker)
        assert later.is_before(later.behind_markers())
        assert later.marker.is_before(later.behind_markers())
        later = later.behind_markers()
    assert begun.is_before(later)
    assert not later.is_before(begun)
    assert not begun.is_before(begun.after(3))
