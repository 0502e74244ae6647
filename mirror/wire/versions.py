"""The versions of Fetch and Produce that the mirror speaks, and those from which their format changes.

Brokers from 0.10.1 on accept Fetch v3 (KIP-74), and from 0.11 on Fetch v4 and Produce v3. Brokers of 4.x accept nothing
older than these two (KIP-896). Every broker in between offers at least one version of both ranges here.
"""

from typing import NamedTuple

PRODUCE_KEY = 0
FETCH_KEY = 1
METADATA_KEY = 3
DESCRIBE_SHARE_KEY = 90
ALTER_SHARE_KEY = 91
API_NAMES = {
    PRODUCE_KEY: "Produce",
    FETCH_KEY: "Fetch",
    METADATA_KEY: "Metadata",
    DESCRIBE_SHARE_KEY: "DescribeShareGroupOffsets",
    ALTER_SHARE_KEY: "AlterShareGroupOffsets",
}

FETCH_VERSIONS = (3, 17)
PRODUCE_VERSIONS = (3, 13)

FETCH_FLEXIBLE = 12
FETCH_TOPIC_IDS = 13
PRODUCE_FLEXIBLE = 9
PRODUCE_TOPIC_IDS = 13

NULL_UUID = bytes(16)


class VersionRange(NamedTuple):
    """A range of API versions, both ends inclusive."""

    least: int
    most: int


def common_version(ours: tuple[int, int], theirs: VersionRange | None) -> int | None:
    """Returns the highest version that both sides speak, or None if there is none."""
    if theirs is None:
        return None
    version = min(ours[1], theirs.most)
    return version if version >= max(ours[0], theirs.least) else None
