"""The one list of reasons to halt, and the document that is made from it."""

import re
from pathlib import Path

import pytest

from mirror.reasons import ELSEWHERE, GAPS, PAUSED, REASONS, UNPLACED, HaltReason, Heals, heals, is_durable
from mirror.relay.topics.verdicts import RESTS_ON_CONFIGS
from tests.project.halts_document import FILE, document

PACKAGE = Path(__file__).parent.parent / "mirror"
ONE_LIST = {"reasons.py", "foretold.py"}
IN_NO_SET = {
    "ambiguous_position", "authorization", "checkpoint_behind", "checkpoint_lost", "corrupt", "corrupt_destination",
    "dead_letter_refused", "destination_rewrites", "fewer_partitions", "fill_not_permitted", "invalid_topic",
    "leading_offsets", "no_common_version", "not_opened", "not_strict", "old_format", "policy_violation",
    "producer_ids_refused", "settings_changed", "sparse_batch", "start_unknown", "strict_refused", "unknown_attributes",
    "unsupported_codec", "unsupported_version",
}  # fmt: skip
"""Reasons after which offsets mean the same on both sides, that on.gap does not pass over, and no config decides."""

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
    assert set(REASONS) == {case.slug for case in HaltReason} - {PAUSED}
    assert set(REASONS) > UNPLACED
    assert set(REASONS) > GAPS
    assert set(REASONS) > ELSEWHERE
    assert set(REASONS) > RESTS_ON_CONFIGS
    assert {case.heals for case in HaltReason} == {None, *Heals}


def test_each_reason_is_in_a_set_or_in_none() -> None:
    """Whoever adds one decides which: mirror.reasons and relay.topics.verdicts say what the sets are for."""
    assert set(REASONS) - ELSEWHERE - GAPS - RESTS_ON_CONFIGS == IN_NO_SET


@CASES
def test_something_halts_with_it(case: HaltReason) -> None:
    use = re.compile(rf"\bHaltReason\.{case.name}\b")
    files = [path for path in PACKAGE.rglob("*.py") if path.name not in ONE_LIST]
    assert any(use.search(path.read_text(encoding="utf-8")) for path in files)


def test_a_reason_of_a_later_version() -> None:
    """It was written down by somebody who knew why: it stays."""
    assert is_durable("unheard_of")


def test_the_document() -> None:
    assert FILE.read_text() == document(), "python -m tests.project.halts_document"
