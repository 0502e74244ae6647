"""The one list of reasons to halt, and the document that is made from it."""

import re

import pytest

from mirror.reasons import GAPS, REASONS, UNPLACED, HaltReason, Heals, heals, is_durable
from tests.halts_document import FILE, document

CASES = pytest.mark.parametrize("case", HaltReason, ids=lambda case: case.name.lower())


@CASES
def test_what_it_says(case: HaltReason) -> None:
    """Fit for a label; a meaning in sentences; a remedy to which more can be added."""
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", case.slug)
    assert case.meaning[0].isupper()
    assert case.meaning.endswith(".")
    assert case.remedy
    assert not case.remedy.endswith(".")


def test_each_text_once() -> None:
    """What means the same is one case."""
    assert len({case.meaning for case in HaltReason}) == len(HaltReason)


@CASES
def test_the_cases_of_one_reason_end_alike(case: HaltReason) -> None:
    """Who shows a halt knows its reason only."""
    assert heals(case.slug) is case.heals
    assert is_durable(case.slug) is (case.heals is None)


def test_the_sets() -> None:
    assert set(REASONS) == {case.slug for case in HaltReason}
    assert set(REASONS) > UNPLACED
    assert set(REASONS) > GAPS
    assert {case.heals for case in HaltReason} == {None, *Heals}


def test_a_reason_of_a_later_version() -> None:
    """It was written down by somebody who knew why: it stays."""
    assert is_durable("unheard_of")


def test_the_document() -> None:
    assert FILE.read_text() == document(), "python -m tests.halts_document"
