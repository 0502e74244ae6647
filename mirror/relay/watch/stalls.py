"""One destination broker that is frozen or slow must not stop the others' partitions.

A fetch answer holds batches for several destination brokers, and its frame goes back with the last of them: two full
answers with some batches for a broker that takes nothing are all of ``buffer.memory``. So while no fetch has been sent
for want of room for a while, lanes are looked at. Those that are behind, with others that could go on, let go of their
frames: what is under way is kept as its size (what the kernel has not got yet as a copy), what waits is fetched again.
Nothing is fetched for them until all that is under way is answered, or the connection has ended.
"""

import asyncio

from mirror.relay.owner import Owner
from mirror.relay.partition import Partition
from mirror.relay.phases import Phase
from mirror.relay.sink import Lane

STALL_S = 0.5
"""Without room for a fetch for so long, and a lane without an answer: longer than a round trip to a far cluster."""


class Stalls:
    """Of all lanes of a process. Costs nothing while there is room for fetches."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None
        self._grants = 0
        self._received: dict[Lane, tuple[int, int]] = {}

    def watch(self) -> None:
        """A fetch waits for room: if that is still so in a while, and none was sent, something is done."""
        if self._timer is None:
            self._grants = self._owner.pool.grants
            self._received = {lane: lane.received for lane in self._owner.lanes}
            self._timer = asyncio.get_running_loop().call_later(STALL_S, self._look)

    def close(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _look(self) -> None:
        self._timer = None
        pool = self._owner.pool
        if not pool.waited_for:
            return
        if pool.grants == self._grants:
            self._make_room()
        if pool.waited_for:
            self.watch()

    def _make_room(self) -> None:
        """Lanes that hold frames and are behind let go of them, if somebody else has use for the room."""
        owner = self._owner
        behind = {
            lane: None
            for lane in owner.lanes
            if lane.holds and (lane.full or lane.received == self._received.get(lane))
        }
        if not behind or not any(_starves(each) and each.lane not in behind for each in owner.partitions.values()):
            return
        for lane in behind:
            lane.stall(owner.pool)
            owner.log.info(
                "lane_stalled",
                broker=lane.node_id,
                detail=f"destination broker {lane.node_id} takes what it is sent slowly or not at all: nothing is "
                "fetched for it until it has answered, so that the others' partitions go on",
            )
        owner.pool.ask_again()


def _starves(partition: Partition) -> bool:
    """It has nothing waiting, nothing under way, and something to fetch."""
    return (
        partition.phase is Phase.ACTIVE
        and not partition.frames
        and not partition.parked
        and not partition.in_flight
        and partition.high_watermark > partition.due
    )
