"""Remedies for findings: each remedy once, with the kinds and the partitions that it is for. Pure."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.request import AuditRequest
from mirror.net.options import tool_options

MOST_NAMED = 10
"""Maximum number of topics that a remedy names, each with its partitions and its commands."""


class Remedy(NamedTuple):
    """What to do about some kinds of findings. ``deletes``: the remedy includes commands that delete each topic at the
    destination and copy it again."""

    kinds: frozenset[Kind]
    text: str
    deletes: bool = False


_REMEDIES = (
    Remedy(frozenset({Kind.ABSENT}), "correct the flow's topics, exclude it, or grant the audit's principal Describe"),
    Remedy(
        frozenset({Kind.UNREADABLE, Kind.CORRUPT}),
        "check the disk of the partition's leader on the side that is named (kafka-dump-log.sh --deep-iteration); let "
        "a healthy replica lead, and run the audit again. Without one at the destination, make a new copy",
    ),
    Remedy(
        frozenset(
            {
                Kind.MISSING,
                Kind.EXTRA,
                Kind.DUPLICATE,
                Kind.MOVED,
                Kind.MISROUTED,
                Kind.HEADER_CHANGED,
                Kind.VALUE_CHANGED,
                Kind.RESEGMENTED,
                Kind.OVERFILLED,
                Kind.UNFILLED,
                Kind.FOREIGN,
                Kind.WHOLESALE,
            }
        ),
        "see with `mirror status` whether the mirror is behind or has halted; run the audit again when it has caught "
        "up. What differs then has to be copied again. First stop who else writes there, save what only the "
        "destination has, and note the consumers' offsets, which go with the topic. Then run, for each topic:",
        deletes=True,
    ),
    Remedy(
        frozenset({Kind.APPEND_TIMES}),
        "set destination.timestamps: append in the flow if that is meant, or message.timestamp.type=CreateTime on the "
        "destination topic",
    ),
    Remedy(frozenset({Kind.FILLER}), "run the mirror: it deletes these records when it takes the partition again"),
    Remedy(
        frozenset({Kind.UNVERIFIABLE}),
        "if these places may stay without proof, set audit.accept: [unverifiable] in the flow",
    ),
    Remedy(
        frozenset({Kind.OVERSIZE}), "if the loss of these records is meant, set audit.accept: [oversize] in the flow"
    ),
)


def remedies(findings: Sequence[Finding], request: AuditRequest, typed: Callable[[str], str] = str) -> list[str]:
    """Returns lines that say what to do, in a fixed order; none for kinds that the configuration accepts.

    Args:
        findings: all findings of the audit.
        request: the request of the audit. Its destination is in the commands.
        typed: rewrites the mirror's commands in a text as they have to be typed on this machine.
    """
    lines = []
    for remedy in _REMEDIES:
        found = [one for one in findings if one.kind in remedy.kinds and one.kind.value not in request.accept]
        if not found:
            continue
        kinds = ", ".join(dict.fromkeys(one.kind.value for one in found))
        lines.append(f"{kinds} ({_places(found)}): {typed(remedy.text)}")
        if remedy.deletes:
            lines += _deletions(sorted({one.topic for one in found}), request, typed)
    return lines


def _places(found: Iterable[Finding]) -> str:
    topics: dict[str, set[int]] = {}
    for one in found:
        partitions = topics.setdefault(one.topic, set())
        partitions |= set() if one.partition is None else {one.partition}
    named = [_place(topic, sorted(partitions)) for topic, partitions in sorted(topics.items())]
    return "; ".join([*named[:MOST_NAMED], *_more(named)])


def _place(topic: str, partitions: Sequence[int]) -> str:
    if not partitions:
        return topic
    return f"{topic} partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))}"


def _deletions(topics: Sequence[str], request: AuditRequest, typed: Callable[[str], str]) -> list[str]:
    """Returns the commands that delete the topics at the destination (Kafka's own tool) and that copy them again
    (``mirror resume``)."""
    lines = ["  (only if nobody else writes to it; otherwise, give the flow another topic.rename)"] * request.mapped
    reached = tool_options(request.destination.bootstrap, request.destination.security)
    for topic in topics[:MOST_NAMED]:
        there = shlex.quote(request.destination_of(topic))
        lines += [
            f"  kafka-topics.sh {reached} --delete --topic {there}",
            f"  {typed('mirror resume')} {shlex.quote(topic)}",
        ]
    return [*lines, *(f"  {more}" for more in _more(topics))]


def _more(named: Sequence[str]) -> list[str]:
    return [f"and {len(named) - MOST_NAMED:,} more topics"] if len(named) > MOST_NAMED else []
