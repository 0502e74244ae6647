"""Compares the topic configs that make brokers refuse batches. The destination must accept every batch that its source
has accepted, and gets it later.

Timestamps: since Kafka 3.6 there are ``message.timestamp.after.max.ms`` and ``.before.max.ms`` (KIP-937). The default
of the former is one hour since 4.0. In versions before 3.6, ``message.timestamp.difference.max.ms`` stands for both,
and up to 3.9 it counts if the newer config has no limit. A record is older when it is copied than when it was written,
so for ``before`` any limit may be too small. A topic with LogAppendTime refuses no timestamp.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mirror.net.cluster import Cluster
from mirror.relay.events import EventLog
from mirror.relay.settings import APPEND_TIME, TIMESTAMP_TYPE

MAX_MESSAGE_BYTES = "max.message.bytes"
AFTER = "message.timestamp.after.max.ms"
BEFORE = "message.timestamp.before.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"
NAMES = (MAX_MESSAGE_BYTES, AFTER, BEFORE, DIFFERENCE)
OF_BROKERS = {
    "message.max.bytes": MAX_MESSAGE_BYTES,
    "log.message.timestamp.after.max.ms": AFTER,
    "log.message.timestamp.before.max.ms": BEFORE,
    "log.message.timestamp.difference.max.ms": DIFFERENCE,
}
"""Broker config -> the topic config of which it is the default."""
NO_LIMIT = (1 << 63) - 1
"""The largest value of such a config, and its default in most versions."""

SEGMENT_BYTES = "segment.bytes"
LARGEST_SEGMENT = 1 << 30
"""Kafka's default, which is enough for any batch."""

NAMED = 5
"""Most topics that a log line names."""

Values = Mapping[str, str | None]


class Narrower(NamedTuple):
    """A config that makes the destination refuse batches which the source accepts, or accepted once. ``there``: its
    value at the destination. ``enough``: the value that is needed."""

    name: str
    there: int
    enough: int


def limit_of(values: Values, name: str) -> int | None:
    """Returns the limit in force for a config of ``NAMES``; None if it is not known. ``values``: all configs that a
    broker sent."""
    own = _number(values, name)
    if name not in (AFTER, BEFORE):
        return own
    if values.get(TIMESTAMP_TYPE) == APPEND_TIME:
        return NO_LIMIT
    older = _number(values, DIFFERENCE)
    if own is None or (own == NO_LIMIT and older is not None):
        return older
    return own


def narrower(here: Values, there: Values) -> list[Narrower]:
    """Returns the configs with which the topic ``there`` accepts less than the topic ``here``, if both values are
    known."""
    found: dict[str, Narrower] = {}
    for name in (MAX_MESSAGE_BYTES, AFTER, BEFORE):
        enough, limit = limit_of(here, name), limit_of(there, name)
        if name == BEFORE and enough is not None:
            enough = NO_LIMIT
        if enough is not None and limit is not None and limit < enough:
            by = name if _number(there, name) == limit else DIFFERENCE
            found[by] = Narrower(by, limit, max(enough, found[by].enough if by in found else 0))
    return list(found.values())


def taken_over(here: Values, defaults: Values) -> dict[str, str]:
    """Returns the timestamp configs for a new topic, so that it accepts every batch that the topic ``here`` accepts.

    Args:
        here: the source topic's values, set on the topic or by its broker.
        defaults: the values that a topic has by default at the destination; its brokers know no other configs.
    """
    needed = {lack.name: str(lack.enough) for lack in narrower(here, defaults) if lack.name != MAX_MESSAGE_BYTES}
    if needed and DIFFERENCE in defaults:
        needed[DIFFERENCE] = str(NO_LIMIT)
    return needed


def set_command(cluster: Cluster, topic: str, name: str, value: int) -> str:
    """Returns the shell command that sets a topic's config."""
    return (
        f"kafka-configs --bootstrap-server {cluster.options.bootstrap_servers} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {name}={value}"
    )


class Warnings:
    """Logs topics that accept less at the destination: one line for each config and pair of values, with the topics
    that were not logged yet."""

    def __init__(self, log: EventLog, destination: str) -> None:
        """``destination``: the cluster's name."""
        self._log = log
        self._destination = destination
        self._told: set[tuple[str, Narrower]] = set()

    def tell(self, found: Iterable[tuple[str, Iterable[Narrower]]]) -> None:
        """Logs what is new. ``found``: destination topics, each with the configs with which it accepts less than its
        source."""
        new: dict[Narrower, list[str]] = {}
        for topic, lacks in found:
            for lack in lacks:
                if (topic, lack) not in self._told:
                    self._told.add((topic, lack))
                    new.setdefault(lack, []).append(topic)
        for lack, topics in new.items():
            more = f" and {len(topics) - NAMED} more" if len(topics) > NAMED else ""
            self._log.warning(
                "destination_narrower",
                config=lack.name,
                destination_value=lack.there,
                needed=lack.enough,
                detail=f"{', '.join(topics[:NAMED])}{more} at {self._destination}: {lack.name}={lack.there} refuses "
                "batches that the source takes; a partition that comes to one halts",
                remedy=f"set {lack.name}={lack.enough} on these topics at {self._destination} (kafka-configs --alter)",
            )


def _number(values: Values, name: str) -> int | None:
    value = values.get(name)
    return int(value) if value else None
