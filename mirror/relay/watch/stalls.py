"""Keeps one destination broker that hangs or is slow from stopping the partitions of the others.

A Fetch response holds batches for several destination brokers, and its frame is released with the last of them. So two
full responses with a few batches for a broker that accepts nothing use up ``buffer.memory``. If no fetch could be sent
for some time for lack of room, the lanes are looked at. If some are behind and others could go on, those that are
behind release their frames. Of batches in flight, only the size is kept (and a copy of the bytes that the kernel has
not taken yet); batches that wait are fetched again. Nothing is fetched for these lanes until everything in flight is
answered, or the connection has ended.
"""

import asyncio

from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.sink import Lane

STALL_S = 0.5
"""Time without room for a fetch, and without a response on a lane, after which lanes are stalled: longer than a round
trip to a distant cluster."""


class Stalls:
    """Watches all lanes of a process. Costs nothing while there is room for fetches."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._timer: asyncio.TimerHandle | None = None
        self._grants = 0
        self._received: dict[Lane, tuple[int, int]] = {}

    def watch(self) -> None:
        """Begins to watch, because a fetch waits for room. If one still waits after ``STALL_S``, and none was sent
        meanwhile, lanes are stalled."""
        if self._timer is None:
            self._grants = self._relay.pool.grants
            self._received = {lane: lane.received for lane in self._relay.lanes}
            self._timer = asyncio.get_running_loop().call_later(STALL_S, self._look)

    def close(self) -> None:
        """Stops watching."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _look(self) -> None:
        self._timer = None
        pool = self._relay.pool
        if not pool.waited_for:
            return
        if pool.grants == self._grants:
            self._make_room()
        if pool.waited_for:
            self.watch()

    def _make_room(self) -> None:
        """Makes the lanes that hold frames and are behind release them, if another partition can use the room."""
        relay = self._relay
        behind = {
            lane: None
            for lane in relay.lanes
            if lane.holds and (lane.full or lane.received == self._received.get(lane))
        }
        if not behind or not any(
            _starves(each) and each.queue.lane not in behind for each in relay.partitions.values()
        ):
            return
        for lane in behind:
            lane.stall(relay.pool)
            relay.log.info(
                "lane_stalled",
                broker=lane.node_id,
                detail=f"destination broker {lane.node_id} takes what it is sent slowly or not at all: nothing is "
                "fetched for it until it has answered, so that the others' partitions go on",
            )
        relay.pool.ask_again()


def _starves(partition: Partition) -> bool:
    """Returns True if the partition has nothing waiting and nothing in flight, but something to fetch."""
    queue = partition.queue
    return (
        partition.phase is Phase.ACTIVE
        and not queue.frames
        and not queue.parked
        and not queue.in_flight
        and partition.cursor.high_watermark > partition.cursor.due
    )
