"""Defaults that differ from MirrorMaker 2's, where the import keeps the mirror's default."""

from collections.abc import Mapping

DEFAULTS: Mapping[str, str] = {
    "isolation.level": "read_committed here, so that records of aborted transactions are not copied; MirrorMaker "
    "2's consumers read "
    "uncommitted",
    "replication.factor": "the destination's default here; 2 in MirrorMaker 2",
    "refresh.topics.interval.ms": "a minute here; ten minutes in MirrorMaker 2",
}
"""Key of a flow in the mirror's configuration -> the difference, in words."""
