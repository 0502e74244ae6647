"""``mirror cutover --reverse``: prepares the way back. The flow back begins where the cutover ended, so it copies only
what was written since.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from mirror.offsetmap.fields import same_ids
from mirror.service.cutover.adopting import Adopting, Adoption
from mirror.service.cutover.certificate import SKIPPED, Audit
from mirror.service.cutover.command import Refused
from mirror.service.cutover.state import Subject
from mirror.service.cutover.world import Found
from mirror.service.offsets.ends import Key, Missing, PartitionEnds
from mirror.service.texts import some

_WHY = "docs/OPERATING.md says what to do then (Moving over)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """The content of a cutover's certificate; see ``certificate.certified``. ``path``: path of its file."""

    path: Path
    subject: Subject
    rows: Mapping[Key, PartitionEnds]
    audit: Audit


def check_certificate(given: Certified, subject: Subject, *, skip_audit: bool) -> None:
    """Checks that a certificate is of this flow, and that an audit stands behind it.

    Args:
        given: the certificate.
        subject: the flow.
        skip_audit: True to accept a certificate without an audit.

    Raises:
        Refused: the certificate is of another flow or other clusters, or its audit was skipped.
    """
    if given.subject != subject:
        was, now = given.subject.data(), subject.data()
        told = ", ".join(f"{name} {was[name]}, and here {now[name]}" for name in now if was[name] != now[name])
        raise Refused(f"{given.path} is the certificate of another cutover ({told})")
    if given.audit.verdict == SKIPPED and not skip_audit:
        raise Refused(
            f"the audit was skipped, by {given.path}, so nothing proves that both clusters were the same: run `mirror "
            "cutover` again before anything is written to the destination; or take that on trust with --skip-audit"
        )


def check_logs(
    given: Mapping[Key, PartitionEnds],
    found: Collection[PartitionEnds],
    begun: Collection[Key] = (),
    *,
    missing: Collection[Missing] = (),
) -> None:
    """Checks that the former source still holds exactly what was certified, and the former destination at least that.
    The certificate says that both were the same up to there.

    Args:
        given: the partitions as they were certified.
        found: the partitions as they are now.
        begun: partitions of which the flow back has copied something to the former source; see ``Adopting.begun``.
        missing: topics of which the source shows no partition.

    Raises:
        Refused: something is not as it was certified; the message names the partitions.
    """
    now = {row.key: row for row in found}
    why = {each.topic: f"not seen: {each.why}" for each in missing}
    wrong = [
        f"{topic}-{partition} is {why.get(topic, 'gone')}" for topic, partition in sorted(given.keys() - now.keys())
    ]
    wrong += [f"{row.name} was not cut over" for row in found if row.key not in given]
    for key in sorted(given.keys() & now.keys()):
        if told := _differs(given[key], now[key], begun=key in begun):
            wrong.append(f"{given[key].name}: {told}")
    if wrong:
        lines = some(wrong, 20, between="\n  ")
        raise Refused(f"the clusters are not as they were certified:\n  {lines}\n  {_WHY}")


def _differs(was: PartitionEnds, now: PartitionEnds, *, begun: bool) -> str:
    """Returns the first thing that is not as it was certified, in words; empty: everything is."""
    if now.why:
        return now.why
    if not same_ids((was.source_id, was.destination_id), (now.source_id, now.destination_id)):
        return "a topic was deleted and created again since"
    if now.source_end != was.source_end and not (begun and now.source_end > was.source_end):
        return f"the former source ended at {was.source_end}, and ends at {now.source_end}: " + (
            "somebody has written there since" if now.source_end > was.source_end else "it has lost records"
        )
    if 0 <= now.source_stable < now.source_end:
        return (
            f"the former source ends at {now.source_end} and is stable up to {now.source_stable}: a transaction's end "
            "was lost, or records are not replicated"
        )
    if now.destination_end < was.source_end:
        return f"the former destination ends at {now.destination_end}, before {was.source_end}: it has lost records"
    if now.destination_start > was.source_end:
        return (
            f"the former destination begins at {now.destination_start}: it has deleted records from {was.source_end} "
            "on, which the former source does not have"
        )
    return ""


def check_at_rest(found: Found, flow: str) -> str:
    """Checks that the flow that was cut over does not copy any more. Otherwise the flow back would return its copies.

    Args:
        found: a look at the flow that was cut over.
        flow: its name.

    Returns:
        What the operator has to make sure of; empty: nothing.

    Raises:
        Refused: a mirror runs the flow, and some of its partitions are neither paused nor halted.
    """
    resting = {(each.topic, each.partition) for each in found.obstacles}
    active = [row.name for row in found.rows if row.key not in resting]
    if active and not found.running:
        raise Refused(
            f"flow {flow} still copies {some(active)}, and its copies would come back: pause it "
            "with `mirror pause --all`, or stop the mirror"
        )
    if active:
        return (
            f"flow {flow} is not paused, and no mirror answers here that runs it: make sure that none runs it on "
            "another host"
        )
    return ""


async def prepare(
    adopting: Adopting,
    name: str,
    given: Certified,
    *,
    configure: Callable[[str], Callable[[], str]],
    tell: Callable[[str], object],
    dry_run: bool,
    begun: Mapping[Key, str] = MappingProxyType({}),
) -> Adoption:
    """Writes the entries by which the flow back begins where the cutover ended, then its configuration.

    Args:
        adopting: prepares the flow back.
        name: name of the flow back.
        given: the certificate.
        configure: makes and checks the configuration for a flow id. It returns a function that writes the file and
            returns its path.
        tell: gets each line of progress.
        dry_run: True to tell what would be written, and to write nothing.
        begun: partitions of which the flow back has copied something already; see ``Adopting.begun``.

    Returns:
        The entries.

    Raises:
        NotAdopted, NetworkError: see ``Adopting``.
        NotConfigured: the configuration cannot be made or written. If it cannot be made, no entry is written.
    """
    rows: Sequence[PartitionEnds] = [given.rows[key] for key in sorted(given.rows)]
    adoption = await adopting.plan(name, rows, begun)
    for row in rows:
        tell(f"{row.name}: the same up to offset {row.source_end}; what comes from there on is copied back")
    if adoption.begun:
        tell(f"begun before, and left as it is: {some(adoption.begun)}")
    write = configure(adoption.flow_id)
    if dry_run:
        tell(f"would write down the beginning of flow {name} (flow.id {adoption.flow_id}); nothing was changed")
        return adoption
    await adopting.write(adoption)
    tell(f"written down: flow {name} (flow.id {adoption.flow_id}) begins there")
    tell(f"configuration: {write()}")
    return adoption
