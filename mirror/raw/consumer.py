"""``RawConsumer``: KIP-712's ``fetch.raw.bytes`` for any program. docs/RAW.md is its manual.

The program's thread calls it, and handles the group's rebalances (``raw.consume.seat``). A second thread runs the event
loop that fetches from brokers (``raw.consume.fetching``). Positions belong to the program's thread: they move only when
``poll`` is about to return the records, so that an interrupt at any moment loses none.
"""

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from mirror.loop_thread import LoopThread
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.logs.leader_requests import EARLIEST, LATEST
from mirror.raw.consume.cursor import ReadBefore
from mirror.raw.consume.fetching import LOG, Fetching
from mirror.raw.consume.position import RESETS, Position, begins
from mirror.raw.consume.seat import Callback, GroupSeat
from mirror.raw.errors import (
    Closed,
    InvalidConfig,
    NotAssigned,
    OffsetOutOfRange,
    RawError,
    Unavailable,
    of_network,
)
from mirror.raw.model import ConsumerRecord, TopicPartition
from mirror.raw.settings import ConsumerSettings, read_settings
from mirror.service.config.resolve import cluster_options

GROUP_EVERY_S = 0.1
"""How often the group's events are handled while no records arrive."""
LOOK_UP_S = 30.0
"""Longest wait for offsets, if the caller gives no timeout."""
LEAST_LOOK_UP_S = 1.0
"""Least time for looking up a position, also in a poll() that does not wait."""
CLOSE_S = 60.0


def _nothing(_: list[TopicPartition]) -> None:
    """The default of callbacks: does nothing."""


class RawConsumer:
    """A consumer whose records are whole batches, as brokers store them: never decompressed, never changed.

    Not for use by several threads at a time. It is a context manager: leaving it closes the consumer. If it is left by
    an exception, ``on_revoke`` is not called, so that no records are committed that may not have been processed.

    Args:
        config: Kafka's names -> values, such as ``{"bootstrap.servers": "kafka-1:9092", "group.id": "copier"}``. The
            keys are in docs/RAW.md.

    Raises:
        InvalidConfig: something in ``config`` is wrong; the message lists all problems.
        BrokerError: the cluster cannot be reached.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._settings = read_settings(ConsumerSettings, config)
        self._options = cluster_options(self._settings)
        self._positions: dict[TopicPartition, Position] = {}
        self._seat: GroupSeat | None = None
        self._subscribed = False
        self._closed = False
        self._listeners: tuple[Callback, Callback, Callback] = (_nothing, _nothing, _nothing)
        self._thread = LoopThread("raw consumer", timeout_s=CLOSE_S)
        self._thread.start()
        try:
            self._cluster, self._fetching = self._thread.run(self._open())
        except NetworkError as error:
            self._thread.stop()
            raise of_network(error) from error
        except BaseException:
            self._thread.stop()
            raise

    async def _open(self) -> tuple[Cluster, Fetching]:
        cluster = await Cluster.open(self._options.bootstrap_servers, self._options)
        return cluster, Fetching(cluster, self._settings)

    def close(self) -> None:
        """Gives up the partitions (a group's: ``on_revoke`` is called first), leaves the group and closes all
        connections. Commits nothing by itself. May be called twice.

        Raises:
            Exception: as raised by ``on_revoke``; everything is closed all the same.
        """
        if self._closed:
            return
        try:
            self._leave()
        finally:
            self._closed = True
            self._thread.run(self._end())
            self._thread.stop()

    async def _end(self) -> None:
        await self._fetching.close()
        await self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # The last records may not have been processed, but on_revoke would commit the offsets behind them.
            self._listeners = (_nothing, _nothing, _nothing)
        self.close()

    # -- partitions --------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assign: Callback = _nothing,
        on_revoke: Callback = _nothing,
        on_lost: Callback = _nothing,
    ) -> None:
        """Joins the group ``group.id``, which shares the partitions of the topics among its members. Earlier
        subscriptions and assignments end.

        The callbacks are called inside ``poll`` and ``close``.

        Args:
            topics: names; one that begins with ``^`` is a regular expression.
            on_assign: called with the partitions that were added; it may seek.
            on_revoke: called with partitions before another member gets them: commit what was processed of them.
            on_lost: called with partitions that another member has already: no offsets can be committed for them.
        """
        self._check_open()
        names = [topics] if isinstance(topics, str) else list(topics)
        if not names:
            raise InvalidConfig("subscribe: no topic is named; give a list of names, or call unsubscribe()")
        self._check_group("subscribe")
        self._leave()
        self._listeners = (on_assign, on_revoke, on_lost)
        self._subscribed = True
        self._sat().subscribe(names)

    def unsubscribe(self) -> None:
        """Gives up all partitions, and leaves the group."""
        self._check_open()
        self._leave()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, without sharing them in a group. Partitions that the consumer already had by
        ``assign`` keep their positions. With ``group.id``, reading begins at the committed offsets, and ``commit``
        works.

        Args:
            partitions: all partitions that are to be read from now on.
        """
        self._check_open()
        if self._subscribed:
            self._leave()
        wanted = dict.fromkeys(TopicPartition(*at) for at in partitions)
        self._remove([at for at in self._positions if at not in wanted])
        self._positions |= {at: Position() for at in wanted if at not in self._positions}

    def assignment(self) -> list[TopicPartition]:
        """Returns the partitions that the consumer has now."""
        return list(self._positions)

    def _leave(self) -> None:
        try:
            if self._seat is not None:
                self._seat.close()  # which calls on_revoke, and that may commit
        finally:
            self._seat, self._subscribed = None, False
            self._remove(list(self._positions))

    def _sat(self) -> GroupSeat:
        if self._seat is None:
            on_assign, on_revoke, on_lost = self._assigned, self._revoked, self._were_lost
            self._seat = GroupSeat(
                self._settings, self._options, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
            )
        return self._seat

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._positions |= {at: Position() for at in partitions}
        self._listeners[0](partitions)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        try:
            self._listeners[1](partitions)
        finally:
            self._remove(partitions)

    def _were_lost(self, partitions: list[TopicPartition]) -> None:
        self._remove(partitions)
        self._listeners[2](partitions)

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = [at for at in partitions if self._positions.pop(at, None) is not None]
        if gone:
            self._thread.call(lambda: self._fetching.drop(gone))

    # -- reading -----------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """Returns the next batches, each as a record. They come from one broker's response, so they have at most
        ``fetch.max.bytes`` together, or are one larger batch (KIP-74). Those of a partition are in order. Control
        batches and batches without records are left out, with read_committed also aborted ones.

        Args:
            timeout_ms: how long to wait if there is none; a second more if a position has to be looked up.

        Returns:
            The records; empty if none arrived in time.

        Raises:
            PositionError: a partition cannot be read on at its position. Others can: the next ``poll`` goes on with
                them.
            BrokerError: a right is missing, a topic does not exist, or the cluster does not accept this client.
            GroupFailed: the seat in the group is lost for good.
            Closed: the consumer was closed.
            Exception: as raised by a callback of ``subscribe``.
        """
        self._check_open()
        until = time.monotonic() + timeout_ms / 1000
        while True:
            if self._seat is not None and self._subscribed:
                left = max(0.0, until - time.monotonic())
                self._seat.poll(0.0 if self._positions else min(left, GROUP_EVERY_S))
            self._apply(self._positions)
            left = max(0.0, until - time.monotonic())
            located = self._locate(max(left, LEAST_LOOK_UP_S), patient=False)
            records = self._taken(min(left, GROUP_EVERY_S) if self._subscribed or not located else left)
            if records or time.monotonic() >= until:
                return records

    def _taken(self, timeout_s: float) -> list[ConsumerRecord]:
        """Returns the next records, and moves the positions behind them. Raises a partition's error."""
        moved: list[tuple[Position, int | None, ReadBefore]] = []
        try:
            taken = self._thread.run(self._fetching.take(timeout_s), timeout_s + CLOSE_S)
            chunks = [chunk for chunk in taken if chunk.cursor.at in self._positions]
            if len(chunks) < len(taken):  # an interrupt kept the loop from hearing that a partition was given up
                given_up = [chunk.cursor.at for chunk in taken if chunk.cursor.at not in self._positions]
                self._thread.call(lambda: self._fetching.drop(given_up))
            for chunk in chunks:
                if chunk.error is not None:
                    return self._accept(chunk.cursor.at, chunk.error)
                position = self._positions[chunk.cursor.at]
                moved.append((position, position.offset, position.before))
                position.offset = chunk.next_offset
                position.before = ReadBefore(chunk.cursor.topic_id, chunk.leader_epoch)
            return [record for chunk in chunks for record in chunk.records]
        except RawError:
            raise
        except BaseException:
            # An interrupt. The program does not get the records that were taken: they are fetched again.
            for position in self._positions.values():
                position.applied = False
            for position, offset, before in moved:
                position.offset, position.before = offset, before
            self._apply(self._positions)
            raise

    def _accept(self, at: TopicPartition, error: RawError) -> list[ConsumerRecord]:
        """Raises a partition's error, unless ``auto.offset.reset`` says where to go on; then returns no records."""
        begin = RESETS.get(self._settings.auto_offset_reset)
        if isinstance(error, OffsetOutOfRange) and begin is not None:
            LOG.warning("%s; auto.offset.reset is %s", error, self._settings.auto_offset_reset)
            self._positions[at].move(None, begin=begin)
            self._apply([at])
            return []
        self._thread.call(lambda: self._fetching.again(at))
        raise error

    # -- positions ---------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, *, timeout_ms: int = 30_000) -> int:
        """Returns the offset from which the next ``poll`` reads a partition: behind the last batch that was returned.

        Raises:
            NotAssigned: the consumer does not have the partition.
            NoOffset: there is no committed offset, and ``auto.offset.reset`` is none.
            BrokerError: the brokers do not answer.
        """
        position = self._position(partition)
        if position.offset is None:
            self._locate(timeout_ms / 1000, patient=True)
        if position.offset is None:
            raise Unavailable(f"{partition.topic}-{partition.partition}: its position was not found in {timeout_ms} ms")
        return position.offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Sets the position. If the offset is inside a batch, the next record of ``poll`` is a batch of the records
        from there on.

        Raises:
            NotAssigned: the consumer does not have the partition.
        """
        if offset < 0:
            raise ValueError(
                f"offset {offset}; offsets begin with 0, and there is seek_to_beginning() and seek_to_end()"
            )
        self._position(partition).move(offset)
        self._apply([TopicPartition(*partition)])

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Sets the positions to the beginning of the logs. Without ``partitions``, of all that the consumer has."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Sets the positions to the end of the logs; with read_committed, to the first open transaction. Without
        ``partitions``, of all that the consumer has."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: Iterable[TopicPartition], begin: int) -> None:
        chosen = [TopicPartition(*at) for at in partitions] or list(self._positions)
        for at in chosen:
            self._position(at).move(None, begin=begin)
        self._apply(chosen)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops reading these partitions until ``resume``. Their positions stay."""
        chosen = [TopicPartition(*at) for at in partitions]
        for at in chosen:
            self._position(at).pause(True)
        self._apply(chosen)

    def resume(self, *partitions: TopicPartition) -> None:
        """Reads paused partitions again."""
        chosen = [at for at in map(TopicPartition._make, partitions) if self._position(at).paused]
        for at in chosen:
            self._position(at).pause(False)
        self._apply(chosen)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition's log. Raises BrokerError if the brokers do not answer."""
        return self._offsets(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns for each partition the offset behind the last record that can be read now; with read_committed, the
        offset of the first open transaction. Raises BrokerError if the brokers do not answer."""
        return self._offsets(partitions, LATEST)

    def _offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        self._check_open()
        wanted = [TopicPartition(*at) for at in partitions]
        return self._thread.run(self._fetching.offsets(wanted, timestamp, timeout_s=LOOK_UP_S), LOOK_UP_S + CLOSE_S)

    def _position(self, partition: TopicPartition) -> Position:
        self._check_open()
        found = self._positions.get(TopicPartition(*partition))
        if found is None:
            raise NotAssigned(
                f"{partition[0]}-{partition[1]}: the consumer does not have this partition; assign() it, or wait until "
                "the group gives it (on_assign)"
            )
        return found

    def _apply(self, partitions: Iterable[TopicPartition]) -> None:
        """Has the event loop fetch these partitions at their positions, and those no more that are paused or have no
        position. Those where it does so already are left alone."""
        changed = [at for at in partitions if not self._positions[at].applied]
        if not changed:
            return
        offsets = {
            at: position.offset
            for at in changed
            if (position := self._positions[at]).offset is not None and not position.paused
        }
        before = {at: self._positions[at].before for at in offsets}

        def apply() -> None:
            self._fetching.drop([at for at in changed if at not in offsets])
            self._fetching.put(offsets, before)

        self._thread.call(apply)
        for at in changed:
            self._positions[at].applied = True

    def _locate(self, timeout_s: float, *, patient: bool) -> bool:
        """Looks up the positions that are not known.

        Args:
            timeout_s: how long to try.
            patient: True to raise ``Unavailable`` if it fails in time; otherwise the next call tries again.

        Returns:
            True if all positions are known now.
        """
        unknown = [at for at, position in self._positions.items() if position.offset is None and not position.paused]
        if not unknown:
            return True
        try:
            self._look_up(unknown, timeout_s)
        except Unavailable:
            if patient:
                raise
            return False
        return True

    def _look_up(self, partitions: list[TopicPartition], timeout_s: float) -> None:
        committed: dict[TopicPartition, int] = {}
        resumed = [at for at in partitions if self._positions[at].begin is None]
        if resumed and self._settings.group_id:
            committed = self._sat().committed(resumed, timeout_s)
        wanted = {at: self._positions[at] for at in partitions if at not in committed}
        found = dict(committed)
        for begin, chosen in begins(wanted, self._settings).items():
            found |= self._thread.run(self._fetching.offsets(chosen, begin, timeout_s=timeout_s), timeout_s + CLOSE_S)
        for at, offset in found.items():
            self._positions[at].move(offset)
        self._apply(found)

    # -- the group's offsets -----------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits offsets to the group, and waits until its coordinator has them.

        Args:
            offsets: partition -> the offset at which the next member is to begin (``ConsumerRecord.offset + 1``). None:
                the positions of all of the consumer's partitions, behind all that ``poll`` has returned.

        Raises:
            CommitFailed: the coordinator refuses the offsets. During a rebalance, another member may have the
                partitions already.
            NotAuthorized: a right is missing.
            InvalidConfig: there is no ``group.id``.
        """
        self._check_open()
        self._check_group("commit")
        if offsets is None:
            wanted = {
                at: (position.offset, position.before.leader_epoch)
                for at, position in self._positions.items()
                if position.offset is not None
            }
        else:
            wanted = {TopicPartition(*at): (offset, -1) for at, offset in offsets.items()}
        if wanted:
            self._sat().commit(wanted)

    def committed(self, partitions: Iterable[TopicPartition], *, timeout_ms: int = 30_000) -> dict[TopicPartition, int]:
        """Returns the group's committed offsets; partitions without one are left out.

        Raises:
            BrokerError: the coordinator did not answer in time, or a right is missing.
            InvalidConfig: there is no ``group.id``.
        """
        self._check_open()
        self._check_group("committed")
        return self._sat().committed([TopicPartition(*at) for at in partitions], timeout_ms / 1000)

    # -- checks ------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the consumer was closed; make another one")

    def _check_group(self, what: str) -> None:
        if not self._settings.group_id:
            raise InvalidConfig(f"{what}: there is no group; set group.id, or use assign() and seek()")
