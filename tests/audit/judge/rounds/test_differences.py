"""One fault is one finding, wherever it lies and however much lies behind it; and little is read to find it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.audit.judge.rounds import differences, reading, runs
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from tests.audit.logs import Batch, Logs, plain

Told = tuple[Kind, Span | None, Span | None]


def told(found: list[Finding]) -> list[Told]:
    """Without the words."""
    return [(finding.kind, finding.source, finding.destination) for finding in found]


def test_one_lost_record_of_250_000() -> None:
    """Batches of one record each: what is behind it is at its neighbour's place, with as many offsets."""
    source = plain(250_000)
    logs = Logs(source, [*source[:30_123], *source[30_124:]], width=4_000)
    (found,) = logs.audit()
    assert told([found]) == [(Kind.MISSING, Span(30_123, 30_124), None)]
    assert found.detail == "all behind it lies by -1 offsets, source offsets 30124 to 249999"
    assert logs.most_rows < 3 * 4_000 * 2
    assert logs.passes == 1


def test_a_lost_batch_of_many() -> None:
    source = plain(5_000, 7)
    logs = Logs(source, [*source[:100], *source[101:]], width=700)
    (found,) = logs.audit()
    assert told([found]) == [(Kind.MISSING, Span(700, 707), None)]
    assert (found.batches, found.records) == (1, 7)
    assert found.detail == "all behind it lies by -7 offsets, source offsets 707 to 34999"


@pytest.mark.parametrize("at", [0, 1, 99, 100, 101, 2_499, 4_990, 4_998])
def test_a_doubled_batch_at_its_own_place(at: int) -> None:
    source = plain(5_000, 7)
    logs = Logs(source, [*source[: at + 1], source[at], *source[at + 1 :]], width=700)
    (found,) = logs.audit()
    assert told([found]) == [(Kind.DUPLICATE, Span(7 * at, 7 * at + 7), Span(7 * at + 7, 7 * at + 14))]
    assert found.detail.startswith("the source has it once, at its own place; all behind it lies by +7 offsets")
    assert found.detail.endswith(f"source offsets {7 * at + 7} to 34999")


def test_the_last_batch_doubled() -> None:
    source = plain(50, 7)
    (found,) = Logs(source, [*source, source[-1]], width=70).audit()
    assert told([found]) == [(Kind.EXTRA, None, Span(350, 357))]


def test_one_lost_and_one_doubled_far_apart() -> None:
    """The logs end at the same offset, and between the two all is moved: two faults, two findings."""
    source = plain(20_000, 3)
    logs = Logs(source, [*source[:4_000], *source[4_001:16_000], source[15_999], *source[16_000:]], width=300)
    found = logs.audit()
    assert told(found) == [
        (Kind.MISSING, Span(12_000, 12_003), None),
        (Kind.DUPLICATE, Span(47_997, 48_000), Span(47_997, 48_000)),
    ]
    assert found[0].detail == "all behind it lies by -3 offsets, source offsets 12003 to 47999"
    assert found[1].detail == "the source has it once, at its own place"
    assert logs.most_rows < 1_000


def test_a_value_changed_in_what_was_moved() -> None:
    source = plain(20_000, 3)
    changed: list[Batch] = [*source[:4_000], *source[4_001:16_000], ("x", "y", "z"), *source[16_001:]]
    found = Logs(source, changed, width=300).audit()
    assert told(found) == [
        (Kind.MISSING, Span(12_000, 12_003), None),
        (Kind.VALUE_CHANGED, Span(48_000, 48_003), Span(47_997, 48_000)),
    ]
    assert found[0].detail == "all behind it lies by -3 offsets, source offsets 12003 to 59999"


def test_faults_in_thousands_of_places_are_each_named() -> None:
    """More chunks differ than any limit of the first look ever was; none is passed over in silence."""
    source = plain(20_000, 2)
    changed = [("x", f"{index}") if index % 20 == 7 else batch for index, batch in enumerate(source)]
    logs = Logs(source, changed, width=10)
    found = logs.audit()
    assert told(found) == [
        (Kind.VALUE_CHANGED, Span(2 * index, 2 * index + 2), Span(2 * index, 2 * index + 2))
        for index in range(7, 20_000, 20)
    ]


def test_what_is_lost_again_and_again_is_searched_for_once() -> None:
    """Each fault shifts what is behind it, so each is a round of its own. Both logs are read once for all of them."""
    source = plain(3_000, 2)
    left = [batch for at, batch in enumerate(source) if at % 100 != 50]
    logs = Logs(source, left, width=20)
    found = logs.audit()
    assert told(found) == [(Kind.MISSING, Span(2 * at, 2 * at + 2), None) for at in range(50, 3_000, 100)]
    assert logs.read_again <= len(source) + len(left)


def test_a_shift_larger_than_a_window_is_searched_for_behind_it_in_its_own_partition() -> None:
    """Only the rest of the region is read for that. All else is read once, when what differs is named."""
    source, far = plain(20_000, 3), {TopicPartition("u", 0): [(f"u {at}",) for at in range(40_000)]}
    logs = Logs(source, [*source[:1_000], ("a", "new", "one"), *source[9_000:]], width=300, others=far)
    found = logs.audit()
    assert [one.kind for one in found] == [Kind.VALUE_CHANGED, Kind.MISSING]
    rest, everything = 19_000 + 11_001, 20_000 + 12_001 + 40_000
    assert logs.read_again <= rest + everything


@pytest.mark.parametrize("lost", [0, 700])
def test_batches_that_end_nowhere_together_are_looked_at_a_few_times(lost: int) -> None:
    """Behind a fault, no batch of one side ends where one of the other does: each look would show one more that
    reaches over the end of the window, up to the end of the log. After a few, what the shift explains counts for
    nothing."""
    source = plain(2_000, 3)
    logs = Logs(source, [*source[:500], ("x", "y"), *source[500 + lost :]], width=150)
    found = logs.audit()
    assert [one.kind for one in found] == ([Kind.EXTRA, Kind.MISSING] if lost else [Kind.EXTRA])
    assert logs.looked < 20
    assert logs.rows_read < (8 * len(source) if lost else 1_500)


def test_a_window_is_not_made_larger_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch but the last ends with one of the other side, and none has a counterpart. Each is told once."""
    monkeypatch.setattr(reading, "MOST_ROWS", 100)
    monkeypatch.setattr(differences, "ROUND_BATCHES", 50)
    source = plain(2_000, 3)
    there = [("x", "y"), *(tuple(f"new {name}" for name in batch) for batch in source[1:]), ("z",)]
    logs = Logs(source, there, width=30)
    found = logs.audit()
    assert {one.kind for one in found} <= {Kind.VALUE_CHANGED, Kind.MISSING, Kind.EXTRA}
    named = sorted(offset for one in found if one.source for offset in range(*one.source))
    assert named == list(range(6_000))
    assert logs.most_rows < 1_000


@pytest.mark.parametrize("end", [300, 400, 380])
def test_another_look_sees_what_the_first_one_did(end: int) -> None:
    """Where cleaners work, what is lost is looked at again: up to where another shift is in force, and to the ends of
    both logs. Mutation: the second look has what lies behind that, too."""
    source = plain(400, 3)
    there = [*source[:100], *source[101:200], *source[201:end]]
    expected = Logs(source, there, width=30).audit()
    logs = Logs(source, there, width=30, cleaners={Side.DESTINATION})
    found = logs.audit()
    assert found == expected
    assert not logs.said
    assert logs.looked > 3


@pytest.mark.parametrize(
    "there",
    [
        [*plain(1_000, 3)[:100], *plain(1_000, 3)[250:]],
        [*plain(1_000, 3)[:100], *[(f"new {at}", "a", "b") for at in range(150)], *plain(1_000, 3)[100:]],
    ],
)
def test_another_look_behind_a_jump(there: list[Batch]) -> None:
    """More is lost, or added, than a window holds. What the jump passed over is a region of its own. Mutation: the
    second look has it, too, and it is told twice."""
    source = plain(1_000, 3)
    expected = Logs(source, there, width=30).audit()
    logs = Logs(source, there, width=30, cleaners={Side.DESTINATION})
    found = logs.audit()
    assert (found, len(found)) == (expected, 1)
    assert logs.looked > 3


def test_what_waits_to_be_named_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same findings; but no more than some batches wait, and what nothing explains is known in time."""
    source = plain(3_000, 2)
    left = [batch for at, batch in enumerate(source) if at % 100 != 50]
    usual = Logs(source, left, width=20)
    expected = usual.audit()
    monkeypatch.setattr(differences, "MOST_WAITING", 5)
    few = Logs(source, left, width=20)
    assert few.audit() == expected
    assert few.searches >= 30 / 5 > usual.searches
    monkeypatch.setattr(differences, "MOST_UNEXPLAINED", 10)
    found = []
    for waiting in (1, 1_000):
        monkeypatch.setattr(differences, "MOST_WAITING", waiting)
        found.append(Logs(source, left, width=20).audit())
    assert Kind.WHOLESALE in {one.kind for one in found[0]}
    assert found[0] == found[1]


def test_too_much_that_nothing_explains_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "ROUND_BATCHES", 2_000)
    monkeypatch.setattr(differences, "MOST_UNEXPLAINED", 5_000)
    source = plain(20_000)
    logs = Logs(source, [(f"other {index}",) for index in range(20_000)], width=100)
    found = logs.audit()
    assert [finding.kind for finding in found] == [Kind.VALUE_CHANGED, Kind.WHOLESALE]
    named, rest = found
    assert named.batches >= 5_000
    assert named.batches + rest.batches == 20_000
    assert named.source is not None
    assert rest.source == rest.destination == Span(named.source.end, 20_000)
    assert f"{rest.batches // 100} chunks differ" in rest.detail
    assert logs.most_rows <= 4_000


def test_what_moved_everywhere_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch has changed places with its neighbour: that are as many faults as pairs, and no shift to follow."""
    monkeypatch.setattr(differences, "ROUND_BATCHES", 200)
    monkeypatch.setattr(differences, "MOST_UNEXPLAINED", 500)
    source = plain(4_000)
    changed = [source[index ^ 1] for index in range(4_000)]
    found = Logs(source, changed, width=100).audit()
    kinds = [finding.kind for finding in found]
    assert set(kinds) == {Kind.MOVED, Kind.WHOLESALE}
    assert kinds.count(Kind.MOVED) < 2_000


@pytest.mark.parametrize("every", [2, 500])
def test_what_a_cleaner_changed_everywhere_is_told_in_bounded_room(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Millions of batches, unchanged ones between them: neighbours are told as one, few are told one by one. Of each
    chunk with one of them it is known that something is told."""
    monkeypatch.setattr(runs, "MOST_APART", 50)
    source = plain(20_000)
    changed = [("written", "anew")[:1] if index % every == 1 else batch for index, batch in enumerate(source)]
    logs = Logs(source, changed, width=100, cleaners={Side.DESTINATION})
    found = logs.audit()
    assert {finding.kind for finding in found} == {Kind.CLEANED}
    assert sum(finding.batches for finding in found) == 20_000 // every
    spans = [finding.destination for finding in found]
    assert spans == [finding.source for finding in found]
    assert all(any(at in range(*span) for span in spans if span) for at in range(1, 20_000, every))
    if every == 2:
        assert len(found) <= 500  # some 50 in each round
        assert all(finding.detail.endswith("; not every batch between these offsets") for finding in found)
        assert logs.said == [Span(at, at + 100) for at in range(0, 20_000, 100)]
    else:
        assert spans == [Span(at, at + 1) for at in range(1, 20_000, every)]


def test_a_stream_in_other_batches_is_followed_by_its_records() -> None:
    """From some place on, other batches; one record of 60,000 is lost among them. Two faults, two findings."""
    source = plain(20_000, 3)
    records = [record for batch in source[5_000:] for record in batch]
    del records[30_000 - 15_000]
    again = [tuple(records[at : at + 10]) for at in range(0, len(records), 10)]
    logs = Logs(source, [*source[:5_000], *again], width=300)
    found = logs.audit()
    assert told(found) == [
        (Kind.RESEGMENTED, Span(15_000, 60_000), Span(15_000, 59_999)),
        (Kind.MISSING, Span(30_000, 30_001), None),
    ]
    lost = found[1]
    assert (lost.batches, lost.records) == (0, 1)
    assert lost.detail == "all behind it lies by -1 offsets, source offsets 30001 to 59999"
    assert logs.most_rows < 5_000


def test_batches_of_another_topic() -> None:
    source = plain(2_000, 3)
    other = {TopicPartition("u", 4): [("a", "b"), ("other", "topic", "batch")]}
    found = Logs(source, [*source[:500], other[TopicPartition("u", 4)][1], *source[501:]], others=other).audit()
    assert told(found) == [
        (Kind.MISROUTED, None, Span(1_500, 1_503)),
        (Kind.MISSING, Span(1_500, 1_503), None),
    ]
    assert found[0].detail == "at the source in topic u partition 4, offset 2"


def test_a_batch_that_was_moved_far_away() -> None:
    """One finding: what lies between its two places moved by its offsets only because it did."""
    source = plain(2_000, 3)
    found = Logs(source, [*source[:500], *source[501:1_500], source[500], *source[1_500:]], width=30).audit()
    assert told(found) == [(Kind.MOVED, Span(1_500, 1_503), Span(4_497, 4_500))]
    assert found[0].detail == "by +2,997 offsets; all behind it lies by -3 offsets, source offsets 1503 to 4499"


def test_a_destination_that_ends_early_beside_a_lost_batch() -> None:
    source = plain(2_000, 3)
    found = Logs(source, [*source[:500], *source[501:1_900]], width=30).audit()
    assert told(found) == [
        (Kind.MISSING, Span(1_500, 1_503), None),
        (Kind.MISSING, Span(5_700, 6_000), None),
    ]
    assert [finding.batches for finding in found] == [1, 100]


BATCHES = st.integers(1, 60)


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=60),
    width=st.integers(1, 40),
    at_once=st.integers(1, 30),
    data=st.data(),
)
def test_each_of_some_faults_is_found(sizes: list[int], width: int, at_once: int, data: st.DataObject) -> None:
    """What is lost is missing, what is new is found; and there are no more findings than faults and their borders."""
    source: list[Batch] = [tuple(f"{index}.{record}" for record in range(size)) for index, size in enumerate(sizes)]
    edited = list(source)
    faults = data.draw(st.integers(0, 3))
    for fault in range(faults):
        at = data.draw(st.integers(0, len(edited) - 1)) if edited else 0
        match data.draw(st.sampled_from(["drop", "double", "change", "add"])) if edited else "none":
            case "drop":
                del edited[at]
            case "double":
                edited.insert(at, edited[at])
            case "change":
                edited[at] = tuple(f"x{fault}.{record}" for record in range(len(edited[at])))
            case "add":
                edited.insert(at, (f"new {fault}",))
    logs = Logs(source, edited, width=width)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(differences, "ROUND_BATCHES", at_once)
        found = logs.audit()
    assert bool(found) == (source != edited)
    assert len(found) <= 2 * faults
    lost = {record for batch in source for record in batch} - {record for batch in edited for record in batch}
    named = {
        offset
        for finding in found
        if finding.kind in (Kind.MISSING, Kind.VALUE_CHANGED, Kind.RESEGMENTED) and finding.source
        for offset in range(*finding.source)
    }
    records = [record for batch in source for record in batch]
    assert {offset for offset, record in enumerate(records) if record in lost} <= named


def test_more_lost_than_a_window_holds() -> None:
    source = plain(20_000, 3)
    logs = Logs(source, [*source[:1_000], *source[9_000:]], width=300)
    (found,) = logs.audit()
    assert told([found]) == [(Kind.MISSING, Span(3_000, 27_000), None)]
    assert found.batches == 8_000
    assert found.detail == "all behind it lies by -24,000 offsets, source offsets 27000 to 59999"


def test_more_added_than_a_window_holds() -> None:
    source = plain(20_000, 3)
    new: list[Batch] = [(f"new {index}", "a", "b") for index in range(8_000)]
    logs = Logs(source, [*source[:1_000], *new, *source[1_000:]], width=300)
    (found,) = logs.audit()
    assert told([found]) == [(Kind.EXTRA, None, Span(3_000, 27_000))]
    assert found.batches == 8_000
    assert found.detail == "all behind it lies by +24,000 offsets, source offsets 3000 to 59999"


def test_a_short_stream_in_other_batches() -> None:
    """All of it in one chunk: what one log has behind the other's end is opened as well."""
    source = plain(40, 5)
    records = [record for batch in source for record in batch if record != "15.2"]
    again = [tuple(records[at : at + 8]) for at in range(0, len(records), 8)]
    found = Logs(source, again, width=1_000).audit()
    assert told(found) == [
        (Kind.RESEGMENTED, Span(0, 200), Span(0, 200)),
        (Kind.MISSING, Span(77, 78), None),
    ]
