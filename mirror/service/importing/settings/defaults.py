"""Where a default here is another one than MirrorMaker 2's, and the import leaves ours."""

from collections.abc import Mapping

DEFAULTS: Mapping[str, str] = {
    "isolation.level": "read_committed here, so that records of aborted transactions are not copied; MirrorMaker "
    "2's consumers read "
    "uncommitted",
    "replication.factor": "the destination's default here; 2 in MirrorMaker 2",
    "refresh.topics.interval.ms": "a minute here; ten minutes in MirrorMaker 2",
}
"""A flow's key here -> the difference."""
