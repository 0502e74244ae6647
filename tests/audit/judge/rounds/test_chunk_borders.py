"""The same two logs give the same verdict, wherever the borders of the chunks of the first look are."""

import json
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.judge.consequences import told_once
from mirror.audit.judge.rounds import differences, reading, regions
from mirror.audit.judge.rounds.differences import Differences
from mirror.audit.judge.rounds.drill import drill_down
from mirror.audit.judge.rounds.looks import ChunkComparison, Located, Tails, Within
from mirror.audit.judge.rounds.regions import of_bounds
from mirror.audit.judge.spans import merged
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole, What
from mirror.audit.prepare.plan import Range
from mirror.audit.read.holes import Rules
from mirror.audit.read.ranges import cut_records
from mirror.audit.read.rows import Block, Chunks, Runs, digester, make_block
from mirror.audit.spark.options import HOLES, ODD
from tests.records.builders import raw_batch

KEY = TopicPartition("t", 0)
RULES = {Side.SOURCE: Rules(committed=True), Side.DESTINATION: Rules(side=Side.DESTINATION)}
BOTH = frozenset(Side)
WIDTHS = (200, 100, 50, 20, 15, 10, 7, 5, 1)
Told = list[tuple[Kind, Span | None, Span | None]]


def batch(base: int, records: int = 1) -> bytes:
    return raw_batch(bytes(40), base_offset=base, last_offset_delta=records - 1, record_count=records)


def singles(start: int, end: int) -> list[bytes]:
    return [batch(base) for base in range(start, end)]


@dataclass
class BytesOfLogs:
    """``looks.Looks`` over the bytes of two logs, read by the audit's own code; no record differs in batches that
    are opened. ``end``: of both logs. ``said``: as of the last audit."""

    source: Sequence[bytes]
    destination: Sequence[bytes]
    end: int
    cleaners: Set[Side] = frozenset()
    said: Sequence[Span] = ()

    def _block(self, side: Side, where: Range) -> Block:
        body = memoryview(b"".join(self.source if side is Side.SOURCE else self.destination))
        piece = cut_records(body, 0, len(body), where, where.start, RULES[side])
        return make_block(
            body, piece.places, piece.headers, digester("xxh3_128"), holes=piece.holes, rules=RULES[side]
        )  # fmt: skip

    def _rows(self, side: Side, where: Range) -> dict[int, BatchRow]:
        block = self._block(side, where)
        rows = zip(
            block.headers.tolist(), block.last_offsets.tolist(), block.crc_ok.tolist(), block.digests, strict=True
        )
        return {
            head[0]: BatchRow(head[0], last, head[12], head[5], head[7], head[8], head[1] + 12, crc_ok, digest)
            for head, last, crc_ok, digest in rows
        }

    def _chunks(self, side: Side, where: Range) -> dict[int, BatchRow]:
        chunks = Chunks("xxh3_128", where.start, where.width, RULES[side].odd)
        chunks.add(self._block(side, where))
        return {
            row["base_offset"]: BatchRow(
                row["base_offset"], row["last_offset"], row["count"], row["flags"], row["base_timestamp"],
                row["max_timestamp"], row["size"], row["crc_ok"], row["digest"],
            )
            for row in chunks.rows("c", "t", 0).to_pylist()
        }  # fmt: skip

    def _holes(self, side: Side, where: Range) -> dict[str, dict[int, list[Hole]]]:
        runs = Runs(RULES[side].odd)
        found: dict[str, dict[int, list[Hole]]] = {HOLES: {}, ODD: {}}
        for part, start, _, note in [*runs.take(self._block(side, where).holes), *runs.close()]:
            found[part][start] = [Hole(first, end, What(what)) for first, end, what in json.loads(note)]
        return found

    def rows(self, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        """What differs, batch by batch."""
        found = Pairs()
        for where in ranges:
            pairs = _differing(self._rows(Side.SOURCE, where), self._rows(Side.DESTINATION, where))
            here, there = (self._holes(side, where) for side in Side)
            for start in sorted(here[HOLES].keys() | there[HOLES].keys()):
                mine, theirs = here[HOLES].get(start, []), there[HOLES].get(start, [])
                if mine and theirs and mine[-1].end == theirs[-1].end:
                    pairs.equal += mine
                else:
                    pairs.holes += mine
                    pairs.markers += theirs
            pairs.odd += [hole for holes in there[ODD].values() for hole in holes]
            found.add(pairs)
        return {KEY: found}

    def audit(self, width: int, *, rebatches: bool = False) -> Told:
        """What the audit says, if the first look has chunks of this width."""
        whole = Range("t", 0, 0, self.end, True, width)
        differing = _differing(self._chunks(Side.SOURCE, whole), self._chunks(Side.DESTINATION, whole))
        known = Bounds(topic="t", partition=0, source=Span(0, self.end), destination=Span(0, self.end))
        chunks = drill_down({KEY: differing}, {KEY: [whole]}, [])
        looked = Differences(self, {KEY: known}, rebatches=rebatches)
        found = looked.run(one for some in chunks.values() for one in regions.regions(some, of_bounds(known)))
        self.said = looked.said.get(KEY, ())
        told = told_once(found, known, looked.holes(KEY)).findings
        return [(one.kind, one.source, one.destination) for one in told]

    # What these logs have no use for.

    def chunks(self, ranges: Sequence[Range], *, by_record: bool) -> list[ChunkComparison]:
        raise AssertionError("nothing has moved")

    def tails(self, side: Side, ranges: Sequence[Range], *, by_record: bool) -> Tails:
        return Tails({}, {where.key for where in ranges})

    def borders(self, key: TopicPartition) -> Sequence[int]:
        return ()

    def pin(self, key: TopicPartition, border: int, there: int | None) -> None:
        raise AssertionError("no old formats")

    def size(self, where: Range) -> int:
        return where.end - where.start

    def in_source(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        return []

    def in_destination(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        return []

    def records(
        self, differing: Mapping[TopicPartition, Pairs], shifts: Mapping[TopicPartition, int], *, digests: bool
    ) -> dict[TopicPartition, list[RecordDifference]]:
        return {}

    def renew(self, keys: Collection[TopicPartition]) -> bool:
        return False

    def cleaned(self, key: TopicPartition) -> Set[Side]:
        return self.cleaners


def _differing(ours: dict[int, BatchRow], theirs: dict[int, BatchRow]) -> Pairs:
    bases = {base for base in ours.keys() | theirs.keys() if ours.get(base) != theirs.get(base)}
    bases |= {base for base, row in [*ours.items(), *theirs.items()] if not row.crc_ok}
    here, there = ({base: rows[base] for base in sorted(bases) if base in rows} for rows in (ours, theirs))
    return Pairs(here, there)


def test_a_gap_that_covers_whole_chunks() -> None:
    """
    1. A compacted topic that was cleaned on both sides: a note that the markers are gone.
    2. Mutation: a hole counts only in the chunk in which it begins, and the others seem to have become equal.
    """
    log = [*singles(0, 10), *singles(100, 110)]
    for width in WIDTHS:
        found = BytesOfLogs(log, log, 110, BOTH).audit(width)
        assert {(kind, here) for kind, here, _ in found} == {(Kind.CLEANED, None)}, width
        assert merged(there for _, _, there in found if there) == [Span(10, 100)], width
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "overlapping", lambda spans, wanted: iter(()))
        assert any(here for _, here, _ in BytesOfLogs(log, log, 110, BOTH).audit(20))


@pytest.mark.parametrize("width", WIDTHS)
def test_what_was_lost_in_whole_chunks(width: int) -> None:
    lost = BytesOfLogs(singles(0, 110), [*singles(0, 10), *singles(100, 110)], 110)
    assert {kind for kind, _, _ in lost.audit(width)} == {Kind.MISSING}


def test_what_ends_in_the_next_chunk() -> None:
    """
    1. A batch that the destination has in pieces, and small ones that it has in larger ones. The look at a chunk goes
       on to the end of what begins there, and of the next chunk only what is equal is left.
    2. Mutation: it is certain that something differs there.
    """
    large = [*singles(0, 10), batch(10, 25), *singles(35, 60)]
    pieces = [*singles(0, 10), *(batch(base, 5) for base in range(10, 35, 5)), *singles(35, 60)]
    together = [*singles(0, 8), *(batch(base, 5) for base in (8, 13, 18)), *singles(23, 60)]
    for width in WIDTHS:
        cut = BytesOfLogs(large, pieces, 60).audit(width)
        assert cut == [(Kind.REENCODED, Span(10, 35), Span(10, 35))], width
        larger = BytesOfLogs(singles(0, 60), together, 60).audit(width, rebatches=True)
        assert {kind for kind, _, _ in larger} == {Kind.REENCODED}, width
    with pytest.MonkeyPatch.context() as patched:
        before = regions.behind
        patched.setattr(
            differences, "behind", lambda *args: tuple(one._replace(certain=True) for one in before(*args))
        )  # fmt: skip
        with pytest.raises(AuditError, match="while it was read"):
            BytesOfLogs(large, pieces, 60).audit(15)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_running_mirror_that_makes_larger_batches(width: int) -> None:
    """The audited end lies inside of one: the source has grown since."""
    there = [*singles(0, 20), batch(20, 15)]
    assert {kind for kind, _, _ in BytesOfLogs(singles(0, 30), there, 30).audit(width, rebatches=True)} == {
        Kind.REENCODED
    }


def test_a_full_window_is_still_read_to_the_end_of_its_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger batches, of which one reaches over the end of a window. Mutation: what is in the window counts as if it
    were read ahead, and the window's last batch is told without its last originals."""
    monkeypatch.setattr(reading, "MOST_ROWS", 20)
    there = [batch(base, 5) for base in range(0, 200, 5)]
    for width in WIDTHS:
        found = BytesOfLogs(singles(0, 200), there, 200).audit(width, rebatches=True)
        assert found == [(Kind.REENCODED, Span(0, 200), Span(0, 200))], width


@pytest.mark.parametrize("tail", [0, 30])
@pytest.mark.parametrize("rebatches", [False, True])
def test_what_is_longer_than_all_that_lies_between_two_regions(*, rebatches: bool, tail: int) -> None:
    """
    1. A batch whose pieces, or larger batches whose originals, are further apart than what one region may lack: the
       regions are one. With others behind them, and to the logs' ends.
    2. Mutation: they are judged by themselves.
    """
    large = [*singles(0, 10), batch(10, 60), *singles(70, 70 + tail)]
    pieces = [*singles(0, 10), *(batch(base, 20) for base in (10, 30, 50)), *singles(70, 70 + tail)]
    both = (pieces, large) if rebatches else (large, pieces)
    for width in (*WIDTHS, 2):
        found = BytesOfLogs(*both, 70 + tail).audit(width, rebatches=rebatches)
        assert found == [(Kind.REENCODED, Span(10, 70), Span(10, 70))], width
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(differences, "overlaps", lambda *_: False)
        assert {kind for kind, _, _ in BytesOfLogs(*both, 70 + tail).audit(1, rebatches=rebatches)} != {Kind.REENCODED}
