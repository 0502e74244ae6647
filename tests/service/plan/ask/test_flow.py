"""What is made of answers that are missing. ``tests/service/plan/test_command.py`` asks real brokers for the rest."""

import pytest

from mirror.reasons import HaltReason
from mirror.relay.halts import Halted
from mirror.service.plan.ask.flow import only_if_known
from tests.service.plan.facts import partition


@pytest.mark.parametrize(
    ("reason", "rests"),
    [
        (HaltReason.UNPROVEN, True),
        (HaltReason.CHECKPOINT_LOST, True),
        (HaltReason.NOT_A_COPY, False),
        (HaltReason.FOREIGN_WRITER, False),
    ],
)
def test_a_verdict_that_rests_on_what_was_written_down(reason: HaltReason, rests: bool) -> None:
    """It is none while that cannot be read; others stand."""
    facts = partition(halted=Halted.of(reason, "so it is"))
    only_if_known(facts, "")
    assert facts.halted is not None
    only_if_known(facts, "the topic cannot be read")
    assert (facts.halted is None) is rests
    assert bool(facts.unknown) is rests
    if rests:
        assert facts.unknown == "the topic cannot be read, which may show that this is a copy (so it is)"


def test_without_a_verdict() -> None:
    facts = partition()
    only_if_known(facts, "the topic cannot be read")
    assert not facts.unknown
