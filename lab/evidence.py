"""The evidence that a fault has struck, and the record of evidence.

A scenario names the evidence that it needs (``Scenario.struck``). The harness notes evidence when another party than
the one that caused the fault shows it: the proxy, the brokers, the group's coordinator, the kernel, or the supervisor
that reaped a worker. If a repetition lacks some of its evidence, the fault did not strike. Such a repetition does not
count, and is made again.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Evidence", "Record", "missing"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A sign that a fault has struck.

    Attributes:
        name: its name in the report and in messages.
        known: who or what shows it, in words.
        least: how often it has to be seen in one repetition.
    """

    name: str
    known: str
    least: int = 1

    def times(self, least: int) -> "Evidence":
        """Returns the same evidence, which has to be seen at least ``least`` times."""
        return replace(self, least=least)

    def __str__(self) -> str:
        return f"{self.name} ({self.known})" if self.least == 1 else f"{self.least} x {self.name} ({self.known})"


class Record:
    """The evidence that was seen, with times. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, str, int]] = []
        self._turn = threading.Lock()

    def note(self, what: Evidence, count: int = 1) -> None:
        """Notes that evidence was seen just now, ``count`` times. A count of 0 notes nothing."""
        if count > 0:
            with self._turn:
                self._seen.append((time.monotonic(), what.name, count))

    def since(self, at: float) -> Counter[str]:
        """Returns name of the evidence -> how often it was seen since a time. ``at``: seconds of the monotonic
        clock."""
        found: Counter[str] = Counter()
        with self._turn:
            for seen_at, name, count in self._seen:
                if seen_at >= at:
                    found[name] += count
        return found


def missing(needed: Iterable[Evidence], seen: Counter[str]) -> list[str]:
    """Returns the evidence that was not seen often enough, in words.

    Args:
        needed: the evidence that has to be seen.
        seen: name of the evidence -> how often it was seen.
    """
    return [f"{one} was seen {seen[one.name]} times" for one in needed if seen[one.name] < one.least]


# -- processes of the mirror -------------------------------------------------------------------------------------------

WORKER_KILLED = Evidence("worker killed", "its supervisor reaped it after our SIGKILL")
MIRROR_KILLED = Evidence("mirror killed", "its exit status is that of our SIGKILL")
WORKER_ENDED = Evidence("worker ended", "its supervisor reaped it after our SIGTERM, with exit code 0")
WORKER_FROZEN = Evidence("worker frozen", "the kernel had it stopped until we let it go on")
TAKEN_OVER = Evidence(
    "partitions taken over", "the group's coordinator gave them to others while the worker was frozen"
)
HOLE_PASSED = Evidence(
    "hole passed by another", "the proxy delivered the answer to its log-end read to the frozen worker, and the "
    "destination's log went on beyond that end before it woke",
)  # fmt: skip
BOTH_COPY = Evidence(
    "both copy", "both groups' coordinator has given out all partitions, and both mirrors' counts grew"
)
BOTH_BEGIN = Evidence("both begin at one end", "both mirrors located a partition at the same end of the log")
JOINED = Evidence("a mirror joined", "the group's coordinator lists it")
NOTHING_COMMITTED = Evidence("nothing committed", "the coordinator knows no offset, and the destination has records")
OFFSETS_DELETED = Evidence("committed offsets deleted", "the coordinator had them, and has no such group any more")

MIRROR_RESTARTED = Evidence("mirror restarted", "it ended at SIGTERM, and another process of it runs")
SUPERVISOR_FROZEN = Evidence("supervisor frozen", "the kernel had it stopped until we let it go on")
JOINED_AND_LEFT = Evidence("a mirror joined and left", "the group's coordinator listed it, and we ended it")
WORKER_REPLACED = Evidence("worker replaced", "the kernel has another process of its number")
RELOADED = Evidence("configuration reloaded", "the answer of the mirror, its metrics and its status show that change")
STRUCK = Evidence("nemeses of the schedule", "each by the evidence that it names in chaos/nemeses, on its own record")

# -- brokers -----------------------------------------------------------------------------------------------------------

BROKER_KILLED = Evidence("broker killed", "its process ended at our SIGKILL")
BROKER_RESTARTED = Evidence("broker restarted", "another process of it, which answers")
BROKER_FROZEN = Evidence("broker frozen", "the kernel had it stopped until we let it go on")
MOVED = Evidence("partition moved", "the cluster's metadata: its leader is none of its replicas any more")
LED_ELSEWHERE = Evidence("led by another", "the cluster's metadata: the leader before and after")
ABOVE_WATERMARK = Evidence("records above the high watermark", "the leader's log end and its high watermark")
MARKER_WAITED = Evidence(
    "marker in a frozen broker's socket", "the proxy delivered it, the broker answered when it woke"
)
MARKERS = Evidence("markers written", "control batches in the destination's log since the repetition began")
WAITED = Evidence("batches waited", "the ends of both logs while the worker was frozen")
MARKER_UNDER_WAY = Evidence("marker under way", "the proxy passed it on just before")
TOO_FEW_REPLICAS = Evidence(
    "too few replicas in sync", "error 19 or 20 in a broker's answer, seen by the proxy; or fewer in sync than "
    "min.insync.replicas, by metadata, and records above the high watermark, by the leader"
)  # fmt: skip
THROTTLED = Evidence(
    "throttled", "the throttle time in a broker's answer, beyond the request timeout, seen by the proxy"
)
LOG_CUT_BACK = Evidence(
    "acknowledged records lost", "the log's end before the leader was killed, and after the election: or, if more was "
    "copied by then, where the mirror found it",
)  # fmt: skip
START_NOT_KEPT = Evidence("log start not yet on disk", "the brokers' own checkpoint files when they were killed")
LANE_HELD = Evidence("backlog held back", "the sizes of the logs on disk: it had a backlog, and took none of it")
RIGHT_MISSED = Evidence("right missed", "an authorizer's error code in a broker's answer to the mirror, by the proxy")

# -- the network, by the proxy's record --------------------------------------------------------------------------------

_PROXY = "the proxy's record"
CONNECTIONS_CUT = Evidence("connections cut", _PROXY)
HALF_CLOSED = Evidence("connections half closed", _PROXY)
FRAME_CUT = Evidence("frame cut", _PROXY)
FRAME_HELD = Evidence("frame held", _PROXY)
LATE = Evidence("late request answered", "the proxy delivered it, and saw the broker's answer")
WRONG_ANSWER = Evidence("wrong answer given", _PROXY)
WATCHED = Evidence("request seen", _PROXY)
REPLAYED = Evidence("late copy answered", "the broker's answer to the proxy")
DELAYED = Evidence("frames delayed", _PROXY)
BOTH_DELAYED = Evidence("frames delayed at both sides", "the record of the proxy before each side")
STALLED = Evidence("frames stalled", _PROXY)
RECONNECTED = Evidence("new connections", _PROXY)
SLOWED = Evidence("frames slowed by a second", _PROXY)
REFUSED = Evidence("connection refused", "the kernel's word to the mirror, in its log")
HELD_BACK = Evidence(
    "partition waits for its marker", "its end at the destination, twice while held: the same, below the source's"
)  # fmt: skip

# -- data --------------------------------------------------------------------------------------------------------------

STATE_SWEPT = Evidence("producer state swept", "the leader's answer to DescribeProducers, of a partition with data")
PARTITION_ADDED = Evidence(
    "partition added with data", "the source's metadata have one more, and its log end is above 0"
)
TRIMMED_BEHIND = Evidence("copied records deleted at the source", "its log start before and after, and the copy's end")
RETAINED = Evidence("records deleted by retention at the source", "its log start before and after")
COMPACTED_BOTH = Evidence("batches cleaned at both sides", "offsets that no batch has any more, in both logs")
DAMAGED = Evidence("bytes damaged", "the broker's answers to one Fetch before and after")
TRIMMED = Evidence("records deleted by retention", "the destination's log starts")
COMPACTED = Evidence("batches cleaned", "gaps in the source's log")
REWRITES = Evidence("topic made to rewrite", "its settings, read back from the destination")
TOO_LARGE = Evidence("refused as too large", "error 10 in a broker's answer, or the topic's setting read back")
CUT = Evidence("batches cut in pieces", "larger ones in the source's log than the destination's topic takes")
BY_HAND = Evidence("written by somebody else", "the destination's log end before and after")
RECREATED = Evidence("topic made anew", "its id, before and after")
DELETED = Evidence("topic deleted", "the cluster's metadata")
OVERTAKEN = Evidence("deleted before it was copied", "the source's log start is beyond the destination's end")
OPEN_TRANSACTION = Evidence("transaction open", "the last stable offset stays below the high watermark")
MANY_TRANSACTIONS = Evidence("transactions ended", "the producers' count, and control batches in the source's log")
HALF_READ = Evidence("group moved half way", "committed offsets at both sides' coordinators")
