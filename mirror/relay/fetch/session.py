"""The client's side of a fetch session (KIP-227).

The broker remembers what is fetched. So a request names only what has changed since the one before, and a response only
partitions with something new: data, another end or start, an error. A broker that keeps no session answers with session
id 0; then each request names everything.
"""

from collections.abc import Iterable
from typing import NamedTuple

from mirror.relay.fetch.link import PartitionKey
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import FetchPartition

LAST_EPOCH = (1 << 31) - 1
ENDED = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Error codes with which a broker says that it does not keep the session any more. It has restarted, or needed the room
for another session, or a response was lost."""


class Change(NamedTuple):
    """What the next request has to contain."""

    session: tuple[int, int]
    """Session id and epoch."""
    partitions: list[FetchPartition]
    forgotten: list[PartitionKey]


class FetchSession:
    """What the broker knows of the fetched partitions, as of the last request."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[PartitionKey, FetchPartition] = {}

    @property
    def incremental(self) -> bool:
        """True if the next request names only changes, and its response only what is new."""
        return self._epoch > 0

    def knows(self, key: PartitionKey, offset: int) -> bool:
        """Returns True if the broker fetches the partition from this offset on."""
        entry = self._known.get(key)
        return entry is not None and entry.offset == offset

    def next(self, wanted: Iterable[FetchPartition], left: Iterable[PartitionKey]) -> Change:
        """Returns what the next request has to contain, and takes it for sent.

        Args:
            wanted: the partitions that may have changed; outside a session, all partitions.
            left: partitions that are not fetched any more, or not now.
        """
        if not self.incremental:
            self._known = {entry[:2]: entry for entry in wanted}
            return Change((self._id, 0), list(self._known.values()), [])
        known, changed, named = self._known, [], set()
        for entry in wanted:
            named.add(entry[:2])
            if known.get(entry[:2]) != entry:
                known[entry[:2]] = entry
                changed.append(entry)
        # A broker processes new partitions first, so one that left and came back must not be among the forgotten.
        forgotten = [key for key in left if key not in named and known.pop(key, None) is not None]
        return Change((self._id, self._epoch), changed, forgotten)

    def answered(self, session_id: int) -> None:
        """Notes that the request was answered, in the session of this id; 0: the broker keeps none."""
        if session_id:
            self._id, self._epoch = session_id, self._epoch + 1 if self._epoch < LAST_EPOCH else 1
        else:
            self.reset()

    def reset(self) -> None:
        """Has the next request name everything, because it is not certain what the broker knows. The broker ends the
        old session, if it still has it, and begins another one."""
        self._epoch = 0
        self._known = {}

    def forget(self) -> None:
        """Ends the session, because its connection is lost: another broker may answer on the next one."""
        self.reset()
        self._id = 0
