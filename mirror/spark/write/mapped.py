"""``offsets=mapped``: batches are appended at the log's end. Other producers may write to the topic, too."""

from mirror.net.errors import StoredInOldFormat
from mirror.net.logs.leader_requests import list_offset
from mirror.net.logs.log import PartitionLog
from mirror.raw.model import TopicPartition
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity
from mirror.relay.locate.resync import barrier
from mirror.relay.locate.tails import MOST_STRIDE, STRIDE, batches
from mirror.spark.write.errors import Reason, SinkError
from mirror.spark.write.identity import Place, Runs
from mirror.spark.write.log import LOG, Appender, Destination, Found
from mirror.spark.write.rows import Piece

MOST_BACK_BYTES = 64 << 20
"""About how many bytes are read backwards to find the flow's newest batch: other producers may have written much behind
it."""
AT_ONCE_BYTES = 8 << 20
"""About how many bytes one step backwards should read."""


class MappedAppender(Appender):
    """Appends batches at the log's end, and recognises written ones by their identities (``write.identity``)."""

    def __init__(self, destination: Destination, at: TopicPartition, runs: Runs) -> None:
        super().__init__(destination, at)
        self._runs = runs
        self._near = 0
        self._run = -1
        self._run_end = -1
        """The source offset behind the last batch of this attempt's run."""
        self._unread_to = -1
        """The log was not read before this offset; -1: not known yet."""

    async def _begin(self, log: PartitionLog, piece: Piece) -> int:
        """See ``Appender``. The offset is found by the piece's timestamp: copies keep the source's timestamps."""
        self._near = piece.base
        end = await barrier(log, LOG)
        newest = piece.header.max_timestamp
        if newest < 0:
            self._unread_to = await log.start()
        else:
            found = await list_offset(log.cluster, log.topic.name, log.index, log.leader, newest)
            self._unread_to = min(found, end) if found >= 0 else end
        return self._unread_to

    async def _before_end(self, log: PartitionLog) -> None:
        """Nothing to do: the batches themselves show what was written."""

    async def _look_back(self, log: PartitionLog, piece: Piece) -> None:
        """Looks for the flow's newest batch before the offset to which the first row's timestamp led: batches with
        earlier timestamps may nevertheless have later source offsets."""
        upto, start = self._unread_to, await log.start()
        reach, left, is_older = 1, MOST_BACK_BYTES, False
        while upto > start and left > 0 and self._newest < 0:
            at, size = max(start, upto - reach), 0
            try:
                async for header, batch in batches(log, at, upto):
                    size += header.size
                    place = self._place(header)
                    if place is not None:
                        self._found.clear()
                        self._found.append(Found(place, header, batch[HEADER_SIZE:]))
            except StoredInOldFormat:
                is_older = True  # than every batch of the flow
                break
            if self._found:
                self._newest = self._found[0].source_end
            left -= size
            upto, reach = at, max(1, min(reach * STRIDE, reach * AT_ONCE_BYTES // max(1, size), MOST_STRIDE))
        if self._newest < 0 and upto > start and not is_older:
            LOG.warning(
                "not_all_was_looked_at",
                detail=f"{self.name}: none of the flow's batches stands in the last {MOST_BACK_BYTES >> 20} MiB that "
                f"others have written; offsets {start} to {upto - 1} were not looked at, and rows that stand there are "
                "appended once more",
            )
        self._unread_to = start
        while self._found and self._found[0].source_end <= piece.base:
            self._found.popleft()

    def _place(self, header: BatchHeader) -> Place | None:
        return self._runs.place(header, near=self._near)

    def _is_behind(self, found: Found, piece: Piece) -> bool:
        """See ``Appender``. A broker accepts a batch of a run only behind the earlier ones of the run. So if the piece
        belongs to the run of a batch that the log has, it was written, too, and deleted or compacted since."""
        if found.place.run <= piece.base and piece.end <= found.place.offset:
            return True
        told = (
            f"{self.name} does not have source offset {piece.base}, and has {found.place.offset} at "
            f"{found.header.base_offset}"
        )
        raise SinkError(Reason.BEHIND, told)

    def _matched(self, found: Found) -> None:
        self._run, self._run_end = found.place.run, found.source_end

    async def _identity(self, log: PartitionLog, piece: Piece) -> Identity:
        return self._runs.identity(Place(self._run_of(piece), piece.base))

    def _begins_run(self, piece: Piece) -> bool:
        goes_on = self._run >= 0 and self._run_end == piece.base and self._runs.goes_on(self._run, piece.base)
        return not goes_on

    def _run_of(self, piece: Piece) -> int:
        return piece.base if self._begins_run(piece) else self._run

    def _check_base(self, piece: Piece, base: int) -> None:
        """Nothing to check: any offset is right."""

    def _sent(self, piece: Piece) -> None:
        self._near = piece.base
        self._run, self._run_end = self._run_of(piece), piece.end

    def _begin_anew(self) -> None:
        self._run = -1
