"""``mirror.wire.versions``: the ranges that we speak, and the version that two sides agree on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from mirror.wire.versions import (
    FETCH_FLEXIBLE,
    FETCH_KEY,
    FETCH_VERSIONS,
    NULL_UUID,
    PRODUCE_FLEXIBLE,
    PRODUCE_KEY,
    PRODUCE_VERSIONS,
    VersionRange,
    common_version,
)

FETCH_RANGES_OF_BROKERS = {
    "0.11": (0, 5),
    "1.1": (0, 7),
    "2.8": (0, 12),
    "3.9": (0, 17),
    "4.0": (4, 17),
    "4.3": (4, 18),
}
PRODUCE_RANGES_OF_BROKERS = {
    "0.11": (0, 3),
    "1.1": (0, 5),
    "2.8": (0, 9),
    "3.9": (0, 11),
    "4.0": (0, 12),
    "4.3": (0, 13),
}


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((4, 17), None, None),
        ((4, 17), (0, 3), None),
        ((4, 17), (18, 20), None),
        ((4, 17), (0, 4), 4),
        ((4, 17), (17, 20), 17),
        ((4, 17), (0, 18), 17),
        ((4, 17), (4, 17), 17),
        ((4, 17), (5, 9), 9),
        ((4, 4), (4, 4), 4),
    ],
)
def test_the_highest_common_version(
    ours: tuple[int, int], theirs: tuple[int, int] | None, expected: int | None
) -> None:
    assert common_version(ours, VersionRange(*theirs) if theirs else None) == expected


@given(ours=st.tuples(st.integers(0, 20), st.integers(0, 20)), theirs=st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_it_is_the_highest_that_both_have(ours: tuple[int, int], theirs: tuple[int, int]) -> None:
    both = set(range(ours[0], ours[1] + 1)) & set(range(theirs[0], theirs[1] + 1))
    assert common_version(ours, VersionRange(*theirs)) == max(both, default=None)


@pytest.mark.parametrize("release", FETCH_RANGES_OF_BROKERS)
def test_every_broker_from_0_11_is_spoken_to(release: str) -> None:
    assert common_version(FETCH_VERSIONS, VersionRange(*FETCH_RANGES_OF_BROKERS[release])) is not None
    assert common_version(PRODUCE_VERSIONS, VersionRange(*PRODUCE_RANGES_OF_BROKERS[release])) is not None


@pytest.mark.parametrize(
    ("request_class", "key", "versions", "flexible"),
    [
        (FetchRequest, FETCH_KEY, FETCH_VERSIONS, FETCH_FLEXIBLE),
        (ProduceRequest, PRODUCE_KEY, PRODUCE_VERSIONS, PRODUCE_FLEXIBLE),
    ],
)
def test_keys_and_flexible_versions_are_the_schemas(
    request_class: type, key: int, versions: tuple[int, int], flexible: int
) -> None:
    theirs = request_class
    assert key == theirs.API_KEY  # type: ignore[attr-defined]
    for version in range(versions[0], versions[1] + 1):
        assert theirs.flexible_version_q(version) is (version >= flexible)  # type: ignore[attr-defined]


def test_the_null_id_is_sixteen_zeros() -> None:
    assert bytes(16) == NULL_UUID
