"""Differences named: each kind by itself, and the tangles in which one change looks like a thousand."""

import itertools
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.audit.judge.kinds import PlacedBatch, Scene, codec_name, header_changes, joined, named
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Span, TopicPartition
from mirror.audit.model.rows import BatchRow

KEY = TopicPartition("t", 0)
Log = dict[int, BatchRow]


def row(base: int, name: str, count: int = 5, **fields: object) -> BatchRow:
    """A batch whose payload is called ``name``."""
    made = BatchRow(base, base + count - 1, count, 0, 1_000, 1_000, 100, True, name.encode())
    return made._replace(**fields)  # type: ignore[arg-type]


def log(names: Iterable[str], counts: Sequence[int] = (5,), start: int = 0) -> Log:
    """Batches one after the other; counts are used in turn."""
    found: Log = {}
    base = start
    for name, count in zip(names, itertools.cycle(counts), strict=False):
        found[base] = row(base, name, count)
        base += count
    return found


def classify(scene: Scene) -> list[Finding]:
    """As the job does it in the end."""
    return joined(named(scene), scene.holes)


def end_of(found: Log) -> int:
    """Where the log ends."""
    return max((entry.last_offset + 1 for entry in found.values()), default=0)


def findings(source: Log, destination: Log, others: Iterable[PlacedBatch] = ()) -> list[Finding]:
    """As the job does it: rows that differ within the audited offsets, with all places of their contents."""
    audited = Span(0, min(end_of(source), end_of(destination)))
    ours = {base: found for base, found in source.items() if base < audited.end}
    theirs = {base: found for base, found in destination.items() if base < audited.end}
    equal = {base for base in ours.keys() & theirs.keys() if ours[base] == theirs[base] and ours[base].crc_ok}
    in_source: dict[tuple[object, ...], list[PlacedBatch]] = {}
    for place in [*(PlacedBatch(KEY, found) for found in source.values()), *others]:
        in_source.setdefault(place.row.content, []).append(place)
    in_tail: dict[tuple[object, ...], list[PlacedBatch]] = {}
    for base, found in destination.items():
        if base >= audited.end:
            in_tail.setdefault(found.content, []).append(PlacedBatch(KEY, found))
    return classify(
        Scene(
            key=KEY,
            audited=audited,
            source={base: found for base, found in ours.items() if base not in equal},
            destination={base: found for base, found in theirs.items() if base not in equal},
            in_source=in_source,
            in_tail=in_tail,
        )
    )


def told(found: Iterable[Finding]) -> list[tuple[Kind, Span | None, Span | None, int]]:
    """Without the words."""
    return [(finding.kind, finding.source, finding.destination, finding.batches) for finding in found]


def test_equal_logs_have_no_findings() -> None:
    assert findings(log("abc"), log("abc")) == []


def test_a_changed_value() -> None:
    (found,) = findings(log("abc"), log("aXc"))
    assert told([found]) == [(Kind.VALUE_CHANGED, Span(5, 10), Span(5, 10), 1)]
    assert (found.topic, found.partition, found.records) == ("t", 0, 5)
    assert found.detail == "the payload's bytes"


def test_a_changed_header_names_the_fields() -> None:
    theirs = log("abc")
    theirs[5] = theirs[5]._replace(max_timestamp=2_000, flags=0x0C)
    (found,) = findings(log("abc"), theirs)
    assert found.kind is Kind.HEADER_CHANGED
    assert found.detail == "max timestamp 1000 → 2000, codec none → zstd, attributes 0x0000 → 0x000c"


def test_times_of_the_append_are_told_by_name() -> None:
    theirs = log("abc")
    theirs[5] = theirs[5]._replace(max_timestamp=2_000, flags=8)
    (found,) = findings(log("abc"), theirs)
    assert (found.kind, found.batches) == (Kind.APPEND_TIMES, 1)
    theirs[5] = theirs[5]._replace(base_timestamp=2_000)
    assert findings(log("abc"), theirs)[0].kind is Kind.HEADER_CHANGED
    assert findings(theirs, log("abc"))[0].kind is Kind.HEADER_CHANGED


def test_every_header_field_has_a_name() -> None:
    ours = row(0, "a")
    theirs = ours._replace(records=4, size=99, base_timestamp=1, max_timestamp=2, flags=8)
    assert [change.rsplit(" ", 3)[0] for change in header_changes(ours, theirs)] == [
        "record count", "size", "base timestamp", "max timestamp", "attributes",
    ]  # fmt: skip
    assert codec_name(7) == "unknown 7"


def test_a_dropped_batch() -> None:
    assert told(findings(log("abcdef"), log("abdef"))) == [
        (Kind.MISSING, Span(10, 15), None, 1),
        (Kind.MOVED, Span(15, 30), Span(10, 25), 3),
    ]


def test_a_dropped_batch_of_another_size() -> None:
    found = findings(log("abcdef", (5, 3, 7)), log("abdef", (5, 3, 5, 3, 7)))
    assert {(finding.kind, finding.source, finding.batches) for finding in found} == {
        (Kind.MISSING, Span(8, 15), 1),
        (Kind.MOVED, Span(15, 30), 3),
    }


def test_a_doubled_batch() -> None:
    found = findings(log("abcd"), log("abbcd"))
    assert {(kind, source, destination) for kind, source, destination, _ in told(found)} == {
        (Kind.DUPLICATE, Span(5, 10), Span(10, 15)),
        (Kind.MOVED, Span(10, 20), Span(15, 25)),
    }


def test_two_batches_that_changed_places() -> None:
    found = findings(log("abcd"), log("acbd"))
    assert {(kind, source, destination) for kind, source, destination, _ in told(found)} == {
        (Kind.MOVED, Span(10, 15), Span(5, 10)),
        (Kind.MOVED, Span(5, 10), Span(10, 15)),
    }


def test_one_in_anothers_place() -> None:
    assert {(kind, source, destination) for kind, source, destination, _ in told(findings(log("abc"), log("aac")))} == {
        (Kind.DUPLICATE, Span(0, 5), Span(5, 10)),
        (Kind.MISSING, Span(5, 10), None),
    }


def test_a_batch_of_another_partition() -> None:
    elsewhere = PlacedBatch(TopicPartition("t", 3), row(40, "X"))
    found = findings(log("abc"), log("aXc"), [elsewhere])
    assert {finding.kind for finding in found} == {Kind.MISROUTED, Kind.MISSING}
    (misrouted,) = [finding for finding in found if finding.kind is Kind.MISROUTED]
    assert misrouted.destination == Span(5, 10)
    assert misrouted.detail == "at the source in partition 3, offset 40"


@pytest.mark.parametrize(
    ("ours", "theirs", "source", "destination", "side"),
    [
        (True, False, Span(5, 10), Span(5, 10), "at the destination"),
        (False, True, Span(5, 10), Span(5, 10), "at the source"),
        (False, False, Span(5, 10), Span(5, 10), "at the source and the destination"),
    ],
)
def test_a_wrong_checksum(ours: bool, theirs: bool, source: Span, destination: Span, side: str) -> None:
    """Even where both sides are wrong alike: damage is no identity."""
    logs = log("abc"), log("abc")
    for found, good in zip(logs, (ours, theirs), strict=True):
        found[5] = found[5]._replace(crc_ok=good, digest=b"b" if good else b"?")
    (finding,) = findings(*logs)
    assert told([finding]) == [(Kind.CORRUPT, source, destination, 1)]
    assert finding.detail.endswith(side)


def test_a_wrong_checksum_without_a_counterpart() -> None:
    """The source's batch is damaged and the destination's covers other offsets: both are told."""
    source, destination = log("abc"), {0: row(0, "a"), 5: row(5, "x", 4), 9: row(9, "y", 6)}
    source[10] = source[10]._replace(crc_ok=False)
    kinds = [finding.kind for finding in findings(source, destination)]
    assert kinds.count(Kind.CORRUPT) == 1
    assert Kind.RESEGMENTED in kinds
    assert Kind.EXTRA in kinds or kinds.count(Kind.RESEGMENTED) == 1


def test_other_borders_over_the_same_offsets() -> None:
    source = log("ab", (10,))
    destination = {0: row(0, "x", 4), 4: row(4, "y", 6), 10: row(10, "b", 10)}
    (found,) = findings(source, destination)
    assert told([found]) == [(Kind.RESEGMENTED, Span(0, 10), Span(0, 10), 1)]
    assert found.detail == "1 batches at the source, 2 at the destination; their records were not compared"


def test_batches_on_one_side_alone() -> None:
    assert told(findings({0: row(0, "a"), 10: row(10, "c")}, log("abc"))) == [(Kind.EXTRA, None, Span(5, 10), 1)]
    assert told(findings(log("abcde"), {0: row(0, "a"), 20: row(20, "e")})) == [(Kind.MISSING, Span(5, 20), None, 3)]


def test_runs_are_joined_only_where_they_touch_and_say_the_same() -> None:
    found = findings(log("abcdef"), log("aXYdZf"))
    assert told(found) == [
        (Kind.VALUE_CHANGED, Span(5, 15), Span(5, 15), 2),
        (Kind.VALUE_CHANGED, Span(20, 25), Span(20, 25), 1),
    ]
    assert joined(reversed(found)) == found


def test_a_run_of_thousands_is_one_finding() -> None:
    names = [f"batch {index}" for index in range(3_000)]
    found = findings(log(names), log([*names[:10], *names[11:]]))
    assert [(finding.kind, finding.batches) for finding in sorted(found, key=lambda finding: finding.batches)] == [
        (Kind.MISSING, 1),
        (Kind.MOVED, 2_989),
    ]


NAMES = st.lists(st.integers(0, 30), min_size=1, max_size=15, unique=True)


@given(names=NAMES, data=st.data())
def test_any_edit_is_found_and_nothing_else_is_reported(names: list[int], data: st.DataObject) -> None:
    """Every destination batch that differs is in one finding, and every source batch that is gone is missing."""
    edited = list(names)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(edited) - 1)) if edited else 0
        match data.draw(st.sampled_from(["drop", "double", "change", "swap"])) if edited else "none":
            case "drop":
                del edited[at]
            case "double":
                edited.insert(at, edited[at])
            case "change":
                edited[at] = 100 + at
            case "swap":
                edited[at], edited[0] = edited[0], edited[at]
    source, destination = log(map(str, names)), log(map(str, edited))
    found = findings(source, destination)
    end = min(end_of(source), end_of(destination))
    differing = {base for base in range(0, end, 5) if source[base].content != destination[base].content}
    covered = [
        base
        for finding in found
        if finding.destination
        for base in range(finding.destination.start, min(finding.destination.end, end), 5)
    ]
    assert sorted(covered) == sorted(differing)
    assert bool(found) == bool(differing)
    gone = {5 * index for index, name in enumerate(names) if name not in edited and 5 * index < end}
    missing = {
        base
        for finding in found
        if finding.kind in (Kind.MISSING, Kind.VALUE_CHANGED) and finding.source
        for base in range(*finding.source, 5)
    }
    assert gone <= missing


def test_what_another_partition_has_behind_the_end_is_not_moved() -> None:
    """Whichever comes first by name."""
    for other in (TopicPartition("s", 0), TopicPartition("u", 0)):
        scene = Scene(
            key=KEY, audited=Span(0, 5), source=log("a"), destination={}, in_source={},
            in_tail={row(0, "a").content: [PlacedBatch(other, row(90, "a"))]},
        )  # fmt: skip
        assert told(classify(scene)) == [(Kind.MISSING, Span(0, 5), None, 1)]


def test_what_has_no_place_is_not_joined_with_what_has_one() -> None:
    nowhere, here = (
        Finding(
            kind=Kind.EXTRA, topic="t", partition=0, source=None, destination=place, batches=1, records=1, detail=""
        )
        for place in (None, Span(0, 5))
    )  # fmt: skip
    assert joined([here, nowhere]) == [nowhere, here]
