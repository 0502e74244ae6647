"""Watches whether a group's client finishes the rebalances that it begins.

librdkafka 2.16 does not always do it. When the metadata of a subscribed topic change while the application still drains
revoked partitions, or before it has taken the assignment that follows, the client joins the group again at once, and
keeps the assignment that it was about to make. From then on it believes to be in a rebalance: a change of its topics is
put off until "the previous rebalance completes", and after each rebalance it asks for another one, with the old topics
(``rd_kafka_cgrp_subscribe``, ``rkcg_rebalance_incr_assignment``). The whole group then rebalances every second or two,
and new members may wait for their first assignment for minutes. Only a new client ends that.
"""

import time
from collections.abc import Callable

__all__ = ["MOST_IN_A_ROW", "REST_S", "Rebalances"]

REST_S = 5.0
"""A group counts as at rest if it has given no assignment for this long. A client that rebalances endlessly gets one
every second or two."""
MOST_IN_A_ROW = 20
"""After this many assignments without a rest, a client whose topics were changed counts as rebalancing endlessly."""


class Rebalances:
    """Decides from one client's callbacks whether it has left a rebalance unfinished.

    Args:
        clock: returns monotonic seconds.

    Attributes:
        unfinished: why the client has to be replaced by a new one; empty as long as it need not be.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._revoked_at: bytes | None = None
        """The group metadata at the last revocation, if an assignment with the same metadata has to follow."""
        self._in_a_row: int | None = None
        """Number of assignments since the topics were changed; None: they were not changed, or the group was at rest
        since."""
        self._assigned_at = 0.0
        self.unfinished = ""

    def resubscribed(self) -> None:
        """Notes that a member's topics were changed."""
        self._in_a_row = 0
        self._assigned_at = self._clock()

    def revoked(self, seat: bytes, *, follows: bool) -> None:
        """Notes a revocation.

        Args:
            seat: the client's group metadata, which tell generation and member id.
            follows: True if the group revoked it, so that an assignment follows in the same generation (KIP-429); False
                if the client did, because it is no longer subscribed to the topics.
        """
        self._revoked_at = seat if follows else None

    def lost(self) -> None:
        """Notes that the seat is lost: no assignment follows the last revocation."""
        self._revoked_at = None

    def assigned(self, seat: bytes) -> None:
        """Notes an assignment, which may be empty. ``seat``: the client's group metadata before the assignment is
        taken."""
        if self._revoked_at not in (None, seat):
            self.unfinished = "the topics' metadata changed while revoked partitions were drained"
        self._revoked_at = None
        now = self._clock()
        if self._in_a_row is not None:
            self._in_a_row = self._in_a_row + 1 if now - self._assigned_at < REST_S else None
            if self._in_a_row == MOST_IN_A_ROW:
                self.unfinished = f"the group has not rested for {MOST_IN_A_ROW} rebalances since the topics changed"
        self._assigned_at = now
