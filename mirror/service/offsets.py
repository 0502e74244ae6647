"""``mirror offsets translate``: which offset of one side is which on the other; for a consumer group, all of them.

Reads both clusters and the internal topic, and writes nothing but what ``--apply`` asks for: a group's offsets at the
destination. Works while the mirror runs and while it does not.
"""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import NamedTuple, Self

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.net.cluster import Cluster
from mirror.net.errors import Refused, Unreachable
from mirror.net.log import PartitionLog
from mirror.net.state import State
from mirror.net.translation import Translation, translation
from mirror.records.identity import producer_id
from mirror.records.mapping import Place
from mirror.service.config import ClusterSettings, Config
from mirror.service.resolve import cluster_options
from mirror.wire.errors import ErrorCode

ADMIN_TIMEOUT_S = 30.0

EXACT = "this flow has offsets: exact: every offset is the same on both sides"


class NotTranslated(Exception):
    """What was asked for cannot be had; the message says why and what to do."""


class Row(NamedTuple):
    """A group's committed offset. ``place`` None: what the group would read next is not copied yet."""

    topic: str
    partition: int
    offset: int
    destination: str
    place: Place | None


class Translator:
    """Both ends of the enabled flow, opened. An async context manager."""

    def __init__(self, config: Config) -> None:
        self._flow = config.enabled_flow()
        self._alias, _, self._alias_there = self._flow.name.partition("->")
        self._known: dict[tuple[str, int], Translation] = {}
        self._stack = AsyncExitStack()

    @property
    def exact(self) -> bool:
        """Whether the flow keeps offsets as they are."""
        return self._flow.settings.offsets == "exact"

    async def __aenter__(self) -> Self:
        async with self._stack as stack:
            self._source = await self._open(stack, self._alias, self._flow.source)
            self._destination = await self._open(stack, self._alias_there, self._flow.destination)
            self._state = State(self._destination, self._flow.id)
            if not self.exact and not await self._state.open(create=False):
                raise NotTranslated(
                    f"cluster {self._alias_there} has no topic {self._state.topic}: the flow has copied nothing yet"
                )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @staticmethod
    async def _open(stack: AsyncExitStack, alias: str, settings: ClusterSettings) -> Cluster:
        return await stack.enter_async_context(await Cluster.open(alias, cluster_options(settings)))

    # -- single offsets ------------------------------------------------------------------------------------------------

    async def to_destination(self, topic: str, partition: int, offset: int) -> Place | None:
        """Where a reader of the source that goes on at ``offset`` goes on; None: that is not copied yet.

        Raises:
            NotTranslated: the flow has no such partition, or has copied nothing of it.
            NetworkError, Differs: see ``net.translation``.
        """
        if self.exact:
            return Place(offset, exact=True)
        return (await self.of(topic, partition)).to_destination(offset)

    async def to_source(self, topic: str, partition: int, offset: int) -> Place:
        """Where a reader of the destination that goes on at ``offset`` goes on at the source. Raises the same."""
        if self.exact:
            return Place(offset, exact=True)
        return (await self.of(topic, partition)).to_source(offset)

    async def of(self, topic: str, partition: int) -> Translation:
        """The partition's map as of the first time that it is asked for. Raises the same."""
        found = self._known.get((topic, partition))
        if found is None:
            found = self._known[topic, partition] = await self._look(topic, partition)
        return found

    async def _look(self, topic: str, partition: int) -> Translation:
        settings = self._flow.settings
        if not settings.selects(topic):
            raise NotTranslated(f"flow {self._flow.name} does not mirror topic {topic}; check topics and exclude")
        found = await translation(
            self._state,
            await self._log(self._source, topic, partition),
            await self._log(self._destination, settings.selection.destination_of(topic), partition),
            committed=settings.isolation_level == "read_committed",
            own=[producer_id(flow=self._flow.id, cluster_id=self._source.cluster_id, topic=topic, partition=partition)],
        )
        if found is None:
            raise NotTranslated(f"nothing of {topic}-{partition} has been copied yet")
        return found

    async def _log(self, cluster: Cluster, topic: str, partition: int) -> PartitionLog:
        failed = await cluster.refresh([topic])
        code = failed.get(topic)
        if code is not None and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Refused(f"cluster {cluster.name}: Metadata of {topic}", code)
        known = cluster.topics.get(topic)
        if known is None or partition not in known.leaders:
            raise NotTranslated(f"cluster {cluster.name} has no partition {topic}-{partition}")
        leader = cluster.leader(topic, partition)
        if leader is None:
            raise Unreachable(f"cluster {cluster.name}: {topic}-{partition} has no leader at present")
        return PartitionLog(cluster, known, partition, leader)

    # -- consumer groups -----------------------------------------------------------------------------------------------

    async def group(self, group: str) -> list[Row]:
        """The group's committed offsets of the flow's topics at the source, translated.

        Raises:
            NotTranslated: it has none; or see ``to_destination``.
        """
        settings = self._flow.settings
        rows = []
        for committed in _committed(self._flow.source, group):
            topic, partition = committed.topic, committed.partition
            if committed.offset >= 0 and settings.selects(topic):
                place = await self.to_destination(topic, partition, committed.offset)
                rows.append(Row(topic, partition, committed.offset, settings.selection.destination_of(topic), place))
        if not rows:
            raise NotTranslated(
                f"group {group} has committed no offset of a topic of {self._flow.name} at {self._alias}"
            )
        return sorted(rows)

    async def check_whole(self, group: str, rows: Iterable[Row]) -> None:
        """Where several source topics go into one, the group has an offset of each: without one of them, nothing says
        from where it reads that topic, and the others' offsets may lie behind its records.

        Raises:
            NotTranslated: one is missing.
            NetworkError: the source does not answer.
        """
        settings = self._flow.settings
        had = {(row.topic, row.partition) for row in rows}
        wanted = {(row.destination, row.partition) for row in rows}
        await self._source.refresh(None)
        missing = [
            f"{topic.name}:{partition}"
            for topic in self._source.topics.values()
            for partition in topic.leaders
            if settings.selects(topic.name)
            and (settings.selection.destination_of(topic.name), partition) in wanted
            and (topic.name, partition) not in had
        ]
        if missing and not self.exact:
            options = " ".join(f"--topic {each}" for each in sorted(missing))
            raise NotTranslated(
                f"group {group} has committed no offset of {', '.join(sorted(missing))} at {self._alias}, and it goes "
                f"into the same destination partition as what the group has read; nothing was committed. Say at "
                f"{self._alias} from where the group reads it, then apply again: kafka-consumer-groups --group {group} "
                f"--reset-offsets {options} --to-earliest (or --to-latest, to skip it) --execute"
            )

    def apply(self, group: str, rows: Iterable[Row]) -> list[TopicPartition]:
        """Commits what can be translated at the destination, under the same group id and without a leader epoch: with
        the source's, a consumer would read nothing. Of several source partitions in one partition of the destination
        the least offset counts: records are read again rather than missed.

        Returns:
            What was committed.

        Raises:
            NotTranslated: the group has members there, or the commit failed.
        """
        least: dict[tuple[str, int], int] = {}
        for row in rows:
            if row.place is None:
                raise NotTranslated(
                    f"{row.topic}-{row.partition}: offset {row.offset} is not copied yet, and nothing was committed; "
                    "stop the group's consumers and apply again when the mirror has caught up"
                )
            there = (row.destination, row.partition)
            least[there] = min(least.get(there, row.place.offset), row.place.offset)
        admin = _admin(self._flow.destination)
        _check_empty(admin, group, self._alias_there)
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in sorted(least.items())]
        request = ConsumerGroupTopicPartitions(group, offsets)
        try:
            (future,) = admin.alter_consumer_group_offsets([request], request_timeout=ADMIN_TIMEOUT_S).values()
            done = future.result().topic_partitions
        except KafkaException as error:
            raise NotTranslated(
                f"cannot commit for group {group} at {self._alias_there}: {error.args[0].str()}"
            ) from error
        for one in done:
            if one.error is not None:
                raise NotTranslated(f"cannot commit {one.topic}-{one.partition} for group {group}: {one.error.str()}")
        return offsets


async def translate_offset(config: Config, topic: str, partition: int, offset: int, *, to_source: bool) -> str:
    """The answer for one offset, in words.

    Raises:
        NotTranslated: it cannot be had, or is not copied yet.
        NetworkError, Differs: see ``net.translation``.
    """
    async with Translator(config) as translator:
        if translator.exact:
            return f"{offset}\n{EXACT}"
        if to_source:
            place = await translator.to_source(topic, partition, offset)
            return _told(place, f"offset {offset} there holds no record of {topic}-{partition}")
        found = await translator.to_destination(topic, partition, offset)
        if found is None:
            known = await translator.of(topic, partition)
            raise NotTranslated(f"{topic}-{partition} is copied up to offset {known.source_end}, not to {offset} yet")
        return _told(found, f"{topic}-{partition} has no record at offset {offset}, or none that is copied")


def _told(place: Place, why: str) -> str:
    return f"{place.offset}" + ("" if place.exact else f"\n{why}; this is where the next one is, or will be")


async def translate_group(config: Config, group: str, *, apply: bool) -> str:
    """A table of a group's offsets on both sides; with ``apply`` they are committed at the destination.

    Raises:
        NotTranslated: it has none, or they cannot be committed.
        NetworkError, Differs: see ``net.translation``.
    """
    async with Translator(config) as translator:
        rows = await translator.group(group)
        lines = [("topic", "partition", "source", "into", "destination", "")]
        for row in rows:
            there = str(row.place.offset) if row.place else "-"
            note = "not copied yet" if row.place is None else "" if row.place.exact else "next record"
            lines.append((row.topic, str(row.partition), str(row.offset), row.destination, there, note))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        told = [line.rstrip() for line in table]
        if translator.exact:
            told.append(EXACT)
        if apply:
            await translator.check_whole(group, rows)
            done = translator.apply(group, rows)
            told.append(f"committed {len(done)} offsets for group {group} at the destination")
        return "\n".join(told)


def _admin(settings: ClusterSettings) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": settings.bootstrap_servers_text,
            "client.id": f"{settings.client_id}-offsets",
            "log_level": 0,
        }
    )


def _committed(settings: ClusterSettings, group: str) -> list[TopicPartition]:
    request = ConsumerGroupTopicPartitions(group)
    admin = _admin(settings)  # its requests end with it
    try:
        (future,) = admin.list_consumer_group_offsets([request], request_timeout=ADMIN_TIMEOUT_S).values()
        return list(future.result().topic_partitions)
    except KafkaException as error:
        raise NotTranslated(f"cannot read the offsets of group {group}: {error.args[0].str()}") from error


def _check_empty(admin: AdminClient, group: str, alias: str) -> None:
    """A running consumer would go on where it is, and commit over what is written now."""
    try:
        (future,) = admin.describe_consumer_groups([group], request_timeout=ADMIN_TIMEOUT_S).values()
        members = len(future.result().members)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return
        raise NotTranslated(f"cannot describe group {group} at {alias}: {error.args[0].str()}") from error
    if members:
        raise NotTranslated(
            f"group {group} has {members} members at {alias}; stop its consumers there, then apply again"
        )
