"""Every reason to halt is mapped: to the line of ``mirror plan`` that tells of it, or to why none can."""

import re

import pytest

from mirror.foretold import FORETOLD, UNFORESEEN, Line, beforehand, line_of
from mirror.reasons import HaltReason


def test_every_reason_is_mapped_once() -> None:
    assert {*FORETOLD, *UNFORESEEN} == set(HaltReason)
    assert not FORETOLD.keys() & UNFORESEEN.keys()


def test_the_cases_of_one_reason_have_one_line() -> None:
    """Whoever shows a halt knows its reason only."""
    for case, line in FORETOLD.items():
        assert line_of(case.slug) is line, case


def test_ids() -> None:
    """Each once, in order, and none is taken away: scripts name them."""
    assert [line.id for line in Line] == [f"P{number:02}" for number in range(1, len(Line) + 1)]
    assert len({line.slug for line in Line}) == len(Line) >= 35
    assert Line.LOG_APPEND_TIME.id == "P07"
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", line.slug) and line.asks.endswith("?") for line in Line)


@pytest.mark.parametrize("case", UNFORESEEN, ids=lambda case: case.name.lower())
def test_why_none_can(case: HaltReason) -> None:
    assert len(UNFORESEEN[case]) > 20


def test_what_remedies_say() -> None:
    assert beforehand("log_append_time") == ("`mirror plan` sees this (P07 log-append-time)")
    assert beforehand("never_arrived") == ("nothing foretells this: it happens while batches are under way")
    assert beforehand("of_a_later_version") == ""
