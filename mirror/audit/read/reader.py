"""Reads one task's ranges from a cluster, batch by batch, with the project's own frames.

The next fetch is sent as soon as a response's headers are known, so that the broker works while the bytes are digested.
After a lost connection or a moved leader, the leader is looked up and asked again a few times. Nothing is read twice,
because a range continues at the next offset that is due.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress

from mirror.audit.errors import AuditError
from mirror.audit.model.places import Adopted, OldRange, Side, Span, TopicPartition
from mirror.audit.model.request import Endpoint
from mirror.audit.prepare.offsets import EARLIEST, EARLIEST_LOCAL
from mirror.audit.prepare.plan import Range
from mirror.audit.read.fetching import FetchInFlight
from mirror.audit.read.holes import PLAIN, Rules
from mirror.audit.read.leaders import CHECK_BROKER, RUN_AGAIN, Again, BrokenLog, Leaders, NotThere, Throttled
from mirror.audit.read.opened import opened_rows
from mirror.audit.read.ranges import RangeCoverage, RangePiece, cut_records
from mirror.audit.read.rows import Block, digester, make_block
from mirror.audit.read.selecting import Selector
from mirror.audit.read.splitting import Split, Splitter
from mirror.audit.read.witness import Witness
from mirror.audit.spark.options import FETCH_BYTES
from mirror.net.backoff import Backoff
from mirror.net.buffers import Frame
from mirror.net.errors import NetworkError
from mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED, Fetched

MOST_TRIES = 8
"""A range is given up after more than this many failures in a row without a batch in between."""
UNREADABLE_TRIES = 3
"""How often a broker that cannot read its log is asked again: a disk error may be over the next time."""
EMPTY_ANSWERS = 3
"""After this many answers without a batch from a leader whose log goes on, the leader is taken to have no batch there,
or to be unable to find it."""
PROBES = 16
"""About how many later offsets are tried after empty answers."""
STORAGE_WAIT_S, STORAGE_WAITS = 2.0, 90
"""The pause after an empty answer from tiered storage, and the number of pauses in a row after which the audit ends.
Other readers may use up a quota for a while."""
CHECK_STORAGE = (
    "see the brokers' logs, and their remote.log.manager.fetch.max.bytes.per.second; then run the audit again"
)


class Reader:
    """Reads ranges from one cluster. ``open`` connects; from then on, it belongs to the running event loop."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        cluster_id: str,
        topic_ids: dict[str, str],
        digest: str,
        fetch_bytes: int = FETCH_BYTES,
        rules: Rules = PLAIN,
        opens: bool = False,
        cleaned: Collection[str] = (),
        old: Mapping[TopicPartition, Sequence[OldRange]] | None = None,
        adopted: Mapping[TopicPartition, Adopted] | None = None,
    ) -> None:
        """
        Args:
            endpoint: how to reach the cluster.
            cluster_id: the id that the cluster must have.
            topic_ids: the ids that topics must have, by name; a topic without an id is not checked.
            digest: ``xxh3_128`` or ``sha256``.
            fetch_bytes: the limit for the records of one response.
            rules: how batches are classified.
            opens: open all batches, so that blocks have records.
            cleaned: topics on which a log cleaner works on this side, by their names at the source.
            old: the places of old messages in the source. There, a destination's batches are opened, and their
                records become rows.
            adopted: the part of a destination that was there before the flow; no transaction is open in it.
        """
        self._leaders = Leaders(endpoint, cluster_id=cluster_id, topic_ids=topic_ids, fetch_bytes=fetch_bytes)
        self._digest = digester(digest)
        self._rules = rules
        self._opens = opens
        self._cleaned = cleaned
        self._old = old or {}
        self._adopted = adopted or {}
        self._failures = 0  # in a row, to read the log at one offset

    async def open(self, topics: set[str]) -> None:
        """Connects to the cluster, and checks that it is the one whose bounds were frozen.

        Raises:
            AuditError: it is another cluster, a topic was recreated, or the cluster cannot be reached.
        """
        await self._leaders.open(topics)

    async def close(self) -> None:
        """Closes every connection."""
        await self._leaders.close()

    # -- one range ---------------------------------------------------------------------------------------------------

    async def blocks(self, wanted: Range, coverage: RangeCoverage) -> AsyncIterator[Block]:
        """Yields the batches that the range owns, digested, and its holes. ``coverage`` is a new object, which gets the
        counts of what was read; it is complete when the iteration ends.

        Damage to the log's structure ends the range and is reported in ``coverage.broken``: it is a finding.

        Raises:
            AuditError: the range cannot be read to its end for any other reason.
        """
        if wanted.copied is None:
            shift = wanted.shift if self._rules.side is Side.DESTINATION else 0
            async for block in self._shifted(wanted, coverage, shift):
                yield block
            return
        where = wanted.copied
        selector = Selector(where, self._rules.flow_ids)
        split = self._splitter(wanted, 0, selector)
        select = split or _only(selector)
        found = RangeCoverage()
        coverage.next_offset = wanted.start
        if where.start < where.end:
            there = wanted._replace(topic=where.topic, start=where.start, end=where.end, copied=None)
            async for block in self._read(there, found, select, cleaned=wanted.topic in self._cleaned):
                yield block
        coverage.batches, coverage.records, coverage.bytes = found.batches, found.records, found.bytes
        coverage.rows, coverage.row_bytes, coverage.spoiled = found.rows, found.row_bytes, found.spoiled
        coverage.unmapped, coverage.unlisted, coverage.stamped = selector.unmapped, selector.unlisted, found.stamped
        coverage.begins_before, coverage.ends_behind = found.begins_before, found.ends_behind
        coverage.broken, coverage.unreadable = found.broken, found.unreadable
        coverage.log_start, coverage.damaged = found.log_start, found.damaged
        if not found.broken:
            coverage.next_offset = wanted.end
            coverage.offsets = selector.offsets if split is None else found.offsets
            coverage.gap_offsets = wanted.end - wanted.start - coverage.offsets

    async def _shifted(self, wanted: Range, coverage: RangeCoverage, shift: int) -> AsyncIterator[Block]:
        """Yields the blocks of the offsets ``shift`` further on in the log, with the shift subtracted from them."""
        there = wanted._replace(start=wanted.start + shift, end=wanted.end + shift, shift=0)
        found = RangeCoverage() if shift else coverage
        split = self._splitter(wanted, shift)
        async for block in self._read(there, found, split, cleaned=wanted.topic in self._cleaned):
            yield block.moved_by(-shift) if shift else block
        if shift:
            coverage.become(found, -shift)

    def _splitter(self, wanted: Range, shift: int, selector: Selector | None = None) -> Splitter | None:
        """Returns the splitter that opens batches of a destination in this range; None if none is to be opened."""
        old = self._old.get(wanted.key)
        if not old or self._rules.side is Side.SOURCE:
            return None
        return Splitter(
            [one.there(shift, 0 if selector is None else wanted.shift) for one in old],
            Span(wanted.start + shift, wanted.end + shift),
            first=wanted.first,
            select=selector,
        )

    async def _read(
        self, wanted: Range, coverage: RangeCoverage, split: Split | None, *, cleaned: bool
    ) -> AsyncIterator[Block]:
        """Yields blocks as ``blocks`` does. ``wanted`` has the offsets of the log that is read, not the source's.
        ``cleaned``: a log cleaner works on it."""
        if isinstance(split, Splitter):
            # The splitter needs the batch that begins before the range, too: only once it is opened, it shows which of
            # its records belong to the range.
            wanted = wanted._replace(first=True)
        coverage.next_offset = wanted.start
        backoff = Backoff(least_ms=100, most_ms=5_000)
        empty = 0
        witness = Witness(wanted.end)
        sent: FetchInFlight | None = None
        while coverage.next_offset < wanted.end:
            try:
                answer = await self._answer(sent, wanted, coverage, backoff)
            except BrokenLog as broken:
                coverage.broken = str(broken)
                return
            sent = None
            if answer is None:
                continue
            frame, fetched = answer
            try:
                piece = cut_records(
                    frame.body, fetched.start, fetched.end, _rest(wanted, split), coverage.next_offset, self._rules,
                    fetched.aborted, witness, self._adopted_at(wanted, coverage.next_offset),
                )  # fmt: skip
                if split is not None:
                    piece = split(piece, frame.body, coverage.next_offset)
                if coverage.next_offset < piece.next_offset < wanted.end and not piece.broken:
                    isolation_level = self._isolation(wanted, piece.next_offset)
                    sent = self._leaders.send_ahead(wanted, piece.next_offset, isolation_level)
                block = self._block(frame, piece)
            finally:
                frame.release()
            if piece.next_offset > coverage.next_offset or piece.broken:
                backoff.reset()
                empty = 0
            elif (visible := self._visible(fetched, wanted, coverage.next_offset)) < wanted.end:
                low = Again(f"it shows nothing from {visible} on", moved=True)
                await self._recover(wanted, coverage, low, backoff)
            else:
                empty += 1
                if empty >= EMPTY_ANSWERS and not await self._waited_for_storage(wanted, coverage, empty):
                    piece = await self._empty(wanted, coverage, visible, cleaned=cleaned)
                    block = make_block(memoryview(b""), (), piece.headers, self._digest, holes=piece.holes)
            coverage.take(piece)
            coverage.due, coverage.ended = sorted(witness.due), sorted(witness.ended)
            coverage.unexplained = list(witness.unexplained.items())
            coverage.undone, coverage.commits = sorted(witness.undone), list(witness.commits.items())
            if block is not None:
                coverage.damaged += int((~block.crc_ok).sum())
                yield block
            if piece.broken:
                return

    async def _answer(
        self, sent: FetchInFlight | None, wanted: Range, coverage: RangeCoverage, backoff: Backoff
    ) -> tuple[Frame, Fetched] | None:
        """Returns the answer for the offset that is due. None: the caller must ask again, maybe at another offset.

        Raises:
            BrokenLog: the broker still cannot read its log there after ``UNREADABLE_TRIES`` more attempts.
            AuditError: the range cannot be read.
        """
        failures, self._failures = self._failures, 0
        again: Again | None
        try:
            return await self._receive(sent, wanted, coverage.next_offset)
        except BrokenLog as broken:
            if failures >= UNREADABLE_TRIES:
                raise
            self._failures = failures + 1
            again = Again(str(broken), moved=False)
        except NotThere:
            again = await self._pass_over(wanted, coverage)
        except Throttled:
            again = None
        except Again as error:
            again = error
        if again is not None:
            await self._recover(wanted, coverage, again, backoff)
        return None

    async def _pass_over(self, wanted: Range, coverage: RangeCoverage) -> Again | None:
        """Continues at the log's current start after an offset was deleted. Returns None, or the reason why the attempt
        failed if the leader does not tell its start. The Spark driver decides what this means for the comparison.

        Raises:
            AuditError: the log begins at or before the missing offset, so it has lost its end.
        """
        due = coverage.next_offset
        try:
            start = await self._leaders.listed(wanted, EARLIEST)
        except NetworkError as error:
            return Again(str(error), moved=True)
        if start <= due:
            raise AuditError(
                f"{self._leaders.place(wanted)} lost offset {due} and what follows while it was read", RUN_AGAIN
            )
        coverage.log_start = start
        coverage.take(RangePiece.hole(due, min(start, wanted.end)))
        return None

    async def _waited_for_storage(self, wanted: Range, coverage: RangeCoverage, empty: int) -> bool:
        """Waits, and returns True, if the offset that is due is in tiered storage only. Then an empty answer says
        nothing about the log: the storage may be slow, or over its quota (KIP-956). Returns False if the leader has the
        offset on its own disk, or does not answer. ``empty``: the number of empty answers in a row.

        Raises:
            AuditError: there were too many of them, or an error persists when the leader is asked.
        """
        try:
            local = await self._leaders.listed(wanted, EARLIEST_LOCAL)
        except NetworkError:
            return False
        if coverage.next_offset >= local:
            return False
        if empty - EMPTY_ANSWERS >= STORAGE_WAITS:
            raise AuditError(
                f"{self._leaders.place(wanted)} cannot be read from offset {coverage.next_offset}: "
                "its tiered storage gives nothing",
                CHECK_STORAGE,
            )
        await asyncio.sleep(STORAGE_WAIT_S)
        return True

    async def _empty(self, wanted: Range, coverage: RangeCoverage, visible: int, *, cleaned: bool) -> RangePiece:
        """Returns the piece that an empty answer means: a hole from the due offset to the range's end, or a broken log.

        A broker that finds no batch in a segment searches the next ones, so any readable batch after that offset would
        have been in the answer. A log cleaner may leave nothing up to the log's end: for example, if the last segments
        held only tombstones.
        """
        due = coverage.next_offset
        why = await self._behind(wanted, due, visible) if cleaned else "no log cleaner works on this topic"
        if why is None:
            return RangePiece.hole(due, wanted.end)
        coverage.unreadable = True
        told = f"the broker shows nothing from offset {due} on, and its log goes on to {visible}; {why}"
        return RangePiece.hole(due, due)._replace(broken=told)

    async def _behind(self, wanted: Range, due: int, visible: int) -> str | None:
        """Fetches at offsets spread between ``due`` and ``visible``. Returns what the broker shows or fails with at one
        of them, in words, or None if it shows nothing at any."""
        step = max(1, (visible - due) // PROBES)
        for offset in sorted({*range(due + step, visible, step), visible - 1} - {due}):
            try:
                frame, fetched = await self._unthrottled(wanted, offset)
            except (BrokenLog, NotThere, Again) as error:
                return f"at offset {offset}: {error}"
            shown = fetched.end > fetched.start
            frame.release()
            if shown:
                return f"at offset {offset} it shows a batch"
        return None

    async def _unthrottled(self, wanted: Range, offset: int) -> tuple[Frame, Fetched]:
        """Returns the answer for an offset, and asks again for as long as a quota prevents one. Raises what
        ``_receive`` raises, except ``Throttled``."""
        while True:
            with suppress(Throttled):
                return await self._receive(None, wanted, offset)

    async def _receive(self, sent: FetchInFlight | None, wanted: Range, offset: int) -> tuple[Frame, Fetched]:
        """Returns the answer to ``sent`` or, if that is None, to a new fetch from this offset on. Raises what
        ``Leaders.send`` and ``Leaders.receive`` raise."""
        sent = sent or await self._leaders.send(wanted, offset, self._isolation(wanted, offset))
        return await self._leaders.receive(sent, wanted)

    def _block(self, frame: Frame, piece: RangePiece) -> Block | None:
        if not piece.places and not len(piece.holes):
            return None
        body, places, headers = frame.body, piece.places, piece.headers
        block = make_block(body, places, headers, self._digest, holes=piece.holes, rules=self._rules)
        if self._opens:
            timed = not self._rules.append_times
            return block._replace(records=tuple(opened_rows(body, places, headers, self._digest, timed=timed)))
        return block

    def _visible(self, fetched: Fetched, wanted: Range, due: int) -> int:
        """Returns the end of what the leader shows at the range's isolation level: the high watermark, or the last
        stable offset."""
        if self._isolation(wanted, due) == READ_UNCOMMITTED:
            return fetched.high_watermark
        # Only the adopted part is read at read_committed. If the last stable offset lies behind the offset that is due,
        # reading goes on, and behind that part it is read_uncommitted.
        is_behind = not self._rules.committed and fetched.last_stable_offset > due
        return fetched.high_watermark if is_behind else fetched.last_stable_offset

    def _adopted_at(self, wanted: Range, offset: int) -> Adopted | None:
        """Returns the adopted part of the partition if it goes beyond this offset; None otherwise."""
        adopted = self._adopted.get(wanted.key)
        return adopted if adopted is not None and offset < adopted.end else None

    def _isolation(self, wanted: Range, offset: int) -> int:
        """Returns the isolation level at which the range is read from an offset on: read_committed if the list of
        aborted transactions is needed there."""
        adopted = self._adopted_at(wanted, offset)
        lists = self._rules.committed or (adopted is not None and adopted.committed)
        return READ_COMMITTED if lists else READ_UNCOMMITTED

    async def _recover(self, wanted: Range, coverage: RangeCoverage, again: Again, backoff: Backoff) -> None:
        """Waits before the next attempt, and refreshes the metadata if the leader may have changed.

        Raises:
            AuditError: too many failures in a row.
        """
        wait_s = backoff.next_s()
        if backoff.tries > MOST_TRIES:
            raise AuditError(
                f"{self._leaders.place(wanted)} cannot be read from offset {coverage.next_offset}: {again}",
                CHECK_BROKER,
            ) from again
        await asyncio.sleep(wait_s)
        if again.moved:
            try:
                await self._leaders.refresh({wanted.topic})
            except NetworkError:
                return  # the next attempt will fail as well, and is counted


def _rest(wanted: Range, split: Split | None) -> Range:
    """Returns the range for the next piece. If the last piece stopped inside of a batch, the range begins there, so
    that the rest of that batch counts."""
    stopped = split.stopped if isinstance(split, Splitter) else None
    return wanted if stopped is None else wanted._replace(start=stopped)


def _only(selector: Selector) -> Split:
    """Returns a ``Split`` that applies the selector and opens nothing."""
    return lambda piece, _body, _due: selector(piece)
