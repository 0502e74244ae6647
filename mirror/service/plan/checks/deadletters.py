"""Line P37: whether the dead letter topic can take the records that are too large for the destination's topics."""

from collections.abc import Iterator

from mirror.foretold import Line
from mirror.net.rights import WRITE
from mirror.reasons import HaltReason
from mirror.service.plan.checks.rights import lacking, right_names
from mirror.service.plan.model import FlowFacts, Level, PlanFinding, TopicFacts


def of_flow(flow: FlowFacts) -> Iterator[PlanFinding]:
    """Checks that the dead letter topic exists, and that the principal may write to it."""
    letters = flow.dead_letters
    if letters is None:
        return
    where = f"{letters.name} at {flow.destination.name}"
    reason = HaltReason.DEAD_LETTER
    if letters.hidden:
        yield PlanFinding(
            Line.DEAD_LETTERS, Level.UNKNOWN, f"{where}: the principal may not describe it",
            "grant it Write and Describe on the topic", HaltReason.AUTHORIZATION.slug,
        )  # fmt: skip
    elif not letters.exists:
        yield PlanFinding(
            Line.DEAD_LETTERS, Level.WARNS,
            f"{where} does not exist: a partition that comes to a record that is too large halts",
            "create it, with a max.message.bytes for the largest of them", reason.slug,
        )  # fmt: skip
    elif lacks := lacking(letters.rights, WRITE):
        yield PlanFinding(
            Line.DEAD_LETTERS, Level.WARNS,
            f"{where}: the principal lacks {right_names(lacks)}: a partition that comes to a record that is too large "
            "halts",
            f"grant it {right_names(lacks)} on the topic", HaltReason.AUTHORIZATION.slug,
        )  # fmt: skip


def of_topic(flow: FlowFacts, topic: TopicFacts) -> Iterator[PlanFinding]:
    """Checks that the dead letter topic takes larger batches than the destination topic."""
    letters, limit = flow.dead_letters, topic.pair.terms.max_batch_size
    if letters is None or letters.most is None or limit is None or letters.most > limit:
        return
    yield PlanFinding(
        Line.DEAD_LETTERS, Level.WARNS,
        f"{letters.name} at {flow.destination.name} takes batches of {letters.most} bytes, and "
        f"{topic.pair.destination} of {limit}: what is too large for the one is too large for the other",
        f"raise max.message.bytes of {letters.name}", HaltReason.DEAD_LETTER.slug,
    )  # fmt: skip
