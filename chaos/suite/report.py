"""Makes docs/results/failures.md from the rows of what was run."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from statistics import median

from chaos.suite.audits import IDENTICAL, NOT_RUN
from chaos.suite.results import AUDITED, Row

__all__ = ["beside", "markdown", "recovery"]

_HEAD = """\
# Failures

What was done to `mirror` and to the brokers around it, and what came of it. Written by `make chaos` from what was run;
do not edit.

Real producers write to the source while the fault happens: in most scenarios librdkafka's, idempotent and
transactional (one transaction in five aborted), uncompressed or with lz4, snappy or zstd; in some also Kafka's own,
with gzip; in few, the scenario writes all records itself. Then the stream ends, the mirror catches up and is stopped,
and plain consumers read both sides: at the destination, at both isolation levels, there has to be exactly what a
read_committed consumer gets at the source, at the same offsets, with the same keys, values, headers and timestamps,
and the logs have to end at the same offset. Where the flow is *mapped*, offsets and ends differ: it has to be the
same records, in the same order, each once. What retention, DeleteRecords or a cleaner has taken from one side is not
compared there; of a partition that is compacted at both sides, only the last record of each key is. Records that the
scenario itself adds at the destination are left out. After that `mirror audit` compares the batches.

* **lost**: records of the source that the destination's partition lacks. **doubled**: more often there than at the
  source. **misplaced**: at another offset (mapped: in another order), or not of the source at all. Counted by that
  comparison, and by those of what was copied before a halt, or behind damage on disk. What acknowledgements of the
  writers, offsets that were told as skipped, Kafka's own consumer or a wait in vain show is not counted: it is under
  *What did not hold*. *Not compared*: the scenario had failed before.
* **struck**: how often the fault was seen to strike, by the record of the proxy, of the brokers or of the kernel, of
  how many tries. A try that did not strike is repeated and does not count; the list at the end has the evidence, and
  what such tries lacked. A death that nobody ordered, a traceback or stray output of the mirror fails its scenario.
* **nemeses**: faults that are drawn from a seed, several at once. The seed of each schedule is told under *Figures*;
  `CHAOS_SEED` plays it again. There, what the writers were acknowledged is compared with both sides as well.
* **halted**: partitions that stopped as they should, with the one right reason; what had been copied of them is the
  source's, record by record (the records in brackets), and every other partition that is written to went on meanwhile
  (see the figures).
* **recovery**: seconds from the end of the fault until everything that the source then had was copied (median / worst);
  none where no fault ends. Clusters, producers, the mirror and whatever else the machine does share its cores: the last
  table has its load.
* **audit**: what `mirror audit` said, and of how many topics: it leaves out those that halted, that somebody else wrote
  to, or that lost records to retention or a cleaner. *Not run* where the scenario had not held, or the run ended first:
  then it did not hold. *Nothing to audit* if it leaves out all of them.
* **held**: yes, if there was nothing else than what was intended.
"""


_AGAIN = "## Played by itself"
_COMPLETE = re.compile(r"^\*\*\d+ of \d+ scenarios held\*\*", re.MULTILINE)
_SECTION = re.compile(rf"^{_AGAIN}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def markdown(rows: Sequence[Row], names: Collection[str] = ()) -> str:
    """Returns the whole report. ``names``: names of all scenarios, to list those without a row."""
    whole, again = [row for row in rows if not row.again], [row for row in rows if row.again]
    parts = [_HEAD]
    parts.append(_summary(whole, names) if whole else "**No complete run**: what follows was played by itself.\n")
    for group, members in groupby(whole, key=lambda row: row.group):
        parts.append(f"## {group}\n\n{_table(list(members))}")
    if again:
        parts.append(
            f"{_AGAIN}\n\nAfter the complete run, or without one; it replaces nothing of it.\n\n"
            f"{_table(again, runs=True)}"
        )
    if failed := [row for row in rows if not row.held]:
        parts.append("## What did not hold\n\n" + "\n".join(_failure(row) for row in failed) + "\n")
    if measured := [row for row in rows if row.figures]:
        parts.append("## Figures\n\n" + "\n".join(map(_measured, measured)) + "\n")
    parts.append("## What shows that the faults struck\n\n" + "\n".join(map(_evidence, rows)) + "\n")
    parts.append(_provenance(rows))
    return "\n".join(parts)


def beside(document: str, rows: Sequence[Row]) -> str | None:
    """Adds rows of scenarios that were played by themselves to the report of a complete run. This is for a machine that
    does not have the rows of the complete run; the rest of the report does not change.

    Returns:
        The new report; None if the document is not the report of a complete run, or if there are no rows.
    """
    if not _COMPLETE.search(document) or not rows:
        return None
    parts = [f"{_AGAIN}\n\nAfter the complete run; it replaces nothing of it.\n\n{_table(list(rows), runs=True)}"]
    if failed := [row for row in rows if not row.held]:
        parts.append("What did not hold:\n\n" + "\n".join(map(_failure, failed)) + "\n")
    parts.extend("\n".join(map(tell, rows)) + "\n" for tell in (_evidence, _measured))
    parts.append(_provenance(rows).replace("## ", "### ", 1))
    section = "\n".join(parts) + "\n"
    without = _SECTION.sub("", document)
    place = next((at for name in ("What did not hold", "Figures", "What shows that the faults struck")
                  if (at := without.find(f"## {name}\n")) >= 0), len(without))  # fmt: skip
    return without[:place] + section + without[place:]


def recovery(row: Row) -> str:
    """Returns median and maximum of the recovery times in seconds, as text; empty: there was no recovery."""
    if not row.recover_s:
        return ""
    if len(row.recover_s) == 1:
        return f"{row.recover_s[0]:.1f}"
    return f"{median(row.recover_s):.1f} / {max(row.recover_s):.1f}"


def _summary(rows: Sequence[Row], names: Collection[str]) -> str:
    held = sum(row.held for row in rows)
    commits = ", ".join(f"`{commit}`" for commit in dict.fromkeys(row.commit for row in rows) if commit)
    at = f", at commit {commits}" if commits else ""
    missing = [name for name in names if name not in {row.scenario for row in rows}]
    lacking = f" **Not played yet: {', '.join(missing)}.**" if missing else ""
    failed = sum(row.uncompared for row in rows)
    uncompared = f" **{failed} stages failed before both sides were compared.**" if failed else ""
    halts = sum(sum(row.halted.values()) for row in rows)
    return (
        f"**{held} of {len(rows)} scenarios held**{at}, over {sum(row.repetitions for row in rows)} strikes in "
        f"{sum(row.tries for row in rows)} tries, and "
        f"{sum(row.records for row in rows)} records compared: {sum(row.lost for row in rows)} lost, "
        f"{sum(row.doubled for row in rows)} doubled, {sum(row.misplaced for row in rows)} misplaced; "
        f"{halts} partitions halted as intended. {_audited(rows)}{uncompared}{lacking}\n"
    )


def _audited(rows: Sequence[Row]) -> str:
    count = sum(row.audit == IDENTICAL for row in rows)
    without = sum(row.audit in (NOT_RUN, *AUDITED) for row in rows) - count
    return f"The audit found {count} identical; {without} were not audited."


def _table(rows: list[Row], *, runs: bool = False) -> str:
    """Returns a table of rows. ``runs``: True to show commit and time of each row's run."""
    lines = [
        "| scenario | what happens | struck | records | lost | doubled | misplaced | halted as intended | "
        "recovery, s | audit | held |",
        "|---|---|---:|---:|---:|---:|---:|---|---:|---|---|",
    ]
    for row in rows:
        halted = ", ".join(f"{count} {reason}" for reason, count in row.halted.items())
        halted += f" ({row.prefixes})" if row.prefixes else ""
        does = f"{row.does} (at {row.commit}, {row.at})" if runs else row.does
        found = [_counted(row, count) for count in (row.lost, row.doubled, row.misplaced)]
        cells = (
            f"`{row.scenario}`", does, f"{row.repetitions} of {row.tries}", row.records, *found, halted, recovery(row),
            _coverage(row), "yes" if row.held else "**no**",
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def _counted(row: Row, count: int) -> str:
    """Returns a number of records as text. It says so if some were not counted, because a stage has failed before both
    sides were compared."""
    if not row.uncompared:
        return str(count)
    return f"{count}, not all compared" if count or row.records else "not compared"


def _coverage(row: Row) -> str:
    """Returns the audit's verdict, and how many of the topics it covers if that are not all."""
    if row.audit == NOT_RUN or row.audit in AUDITED[1:] or row.audited == row.topics:
        return row.audit
    return f"{row.audit}, {row.audited} of {row.topics} topics"


def _failure(row: Row) -> str:
    said = [problem.splitlines()[0][:400] for problem in row.problems[:4]]
    if row.repetitions < row.wanted:
        said.append(f"it struck {row.repetitions} times of {row.wanted}")
    if row.audit not in AUDITED and (row.audit != NOT_RUN or not row.problems):
        said.append(f"audit: {row.audit}")
    return f"* `{row.scenario}`: " + "; ".join(said)


def _evidence(row: Row) -> str:
    lacked = ", ".join(f"{count} x {one}" for one, count in Counter(row.lacked).items())
    return f"* `{row.scenario}`: " + "; ".join([*row.evidence, *([f"missed tries lacked: {lacked}"] if lacked else [])])


def _measured(row: Row) -> str:
    return f"* `{row.scenario}`: " + "; ".join(row.figures)


def _provenance(rows: Sequence[Row]) -> str:
    lines = [
        "## What was run\n",
        "| scenarios | command | commit | when, UTC | Kafka | brokers | minutes | load average |",
        "|---|---|---|---|---|---|---:|---:|",
    ]
    key = lambda row: (row.command, row.commit, row.at[:10], row.version, row.brokers)  # noqa: E731 - used twice, here alone
    for (command, commit, day, version, brokers), members in groupby(sorted(rows, key=key), key=key):
        found = list(members)
        minutes = sum(row.seconds for row in found) / 60
        loads = [row.load for row in found if row.load]
        load = f"{min(loads):.0f} to {max(loads):.0f}" if loads else ""
        typed = command.replace("|", "\\|")  # a bar would end the cell
        cells = (len(found), f"`{typed}`", commit, day, version, f"{brokers} + {brokers}", f"{minutes:.1f}", load)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"
