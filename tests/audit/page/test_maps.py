"""Maps show each side's log, what of it was audited, and each finding, however small it is."""

import re
from dataclasses import replace

import pytest

from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.result import Undecided
from mirror.audit.page.maps import WIDTH, offset_map
from tests.audit.test_report import coverage, finding, result

Rect = tuple[str, int, int, int]


def rects(svg: str) -> list[Rect]:
    """Class, x, y and width of each."""
    found = re.findall(r'<rect class="(\w+)" x="(\d+)" y="(\d+)" width="(\d+)"', svg)
    return [(name, int(x), int(y), int(width)) for name, x, y, width in found]


AUDITED = Span(0, 50)


def drawn(*findings: Finding, source: Span = AUDITED, destination: Span = AUDITED, **more: object) -> list[Rect]:
    """Of a partition of which offsets 0 to 50 were audited."""
    sides = {Side.DESTINATION: replace(coverage(Side.DESTINATION, "t", 0), log=destination)}
    sides |= {Side.SOURCE: replace(coverage(Side.SOURCE, "t", 0), log=source)}
    return rects(offset_map(sides, findings, replace(result(*findings), **more)))  # type: ignore[arg-type]


def test_all_the_same_is_one_colour_from_end_to_end() -> None:
    assert drawn() == [("same", 0, 0, WIDTH), ("same", 0, 16, WIDTH)]


def test_findings_stand_where_their_offsets_are() -> None:
    one = finding(Kind.MISSING, 20, destination=Span(40, 45))
    assert drawn(one) == [
        ("same", 0, 0, 400), ("wrong", 400, 0, 200), ("same", 600, 0, 400),
        ("same", 0, 16, 800), ("wrong", 800, 16, 100), ("same", 900, 16, 100),
    ]  # fmt: skip


def test_a_difference_is_seen_before_what_has_no_proof() -> None:
    """Also if it comes first, and both share a column."""
    both = [finding(Kind.MISSING, 20), finding(Kind.UNVERIFIABLE, 20)]
    assert ("wrong", 400, 0, 200) in drawn(*both)
    assert "unproved" not in {name for name, *_ in drawn(*both)}
    assert ("unproved", 400, 0, 200) in drawn(both[1])


@pytest.mark.parametrize("span", [Span(0, 0), Span(999_999, 1_000_000), Span(500_000, 500_000)])
def test_the_least_is_a_column(span: Span) -> None:
    """One offset of a million, or the border between two."""
    log = Span(0, 1_000_000)
    found = drawn(replace(finding(Kind.UNFILLED, 0), source=span), source=log, destination=log)
    assert [(x, width) for name, x, y, width in found if name == "wrong"] == [(min(WIDTH - 1, span.start // 1000), 1)]


def test_what_was_not_audited_is_grey_and_both_have_one_scale() -> None:
    found = drawn(source=Span(0, 100), destination=Span(50, 100))
    assert found == [("same", 0, 0, 500), ("log", 500, 0, 500), ("same", 0, 16, 500), ("log", 500, 16, 500)]


def test_mapped_copies_have_a_scale_of_their_own() -> None:
    """What was audited is given in the source's offsets; the destination's log has others."""
    found = drawn(source=Span(0, 100), destination=Span(5_000, 5_010), offsets="mapped")
    assert found == [("same", 0, 0, 500), ("log", 500, 0, 500), ("same", 0, 16, WIDTH)]


def test_what_an_open_transaction_hides() -> None:
    hidden = Undecided(Side.SOURCE, "t", 0, Span(45, 50))
    others = [Undecided(Side.SOURCE, "t", 1, Span(0, 9)), Undecided(Side.SOURCE, "u", 0, Span(0, 9))]
    found = drawn(undecided=(hidden, *others))
    assert [rect for rect in found if rect[0] == "open"] == [("open", 900, 0, 100)]


def test_what_an_open_transaction_hides_under_another_name() -> None:
    """The destination's topics have names of their own; one may be that of another source topic."""
    undecided = (Undecided(Side.DESTINATION, "u", 0, Span(45, 50)), Undecided(Side.DESTINATION, "t", 0, Span(0, 9)))
    found = drawn(undecided=undecided, renamed={"t": "u", "v": "t"})
    assert [rect for rect in found if rect[0] == "open"] == [("open", 900, 16, 100)]


def test_an_empty_partition_has_a_map() -> None:
    assert drawn(source=Span(7, 7), destination=Span(7, 7)) != []
