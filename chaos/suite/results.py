"""The rows of results, which are kept in chaos.json (``chaos.suite.publishing``).

There is one complete run, which a later one replaces. A scenario that is played by itself gets a separate row, and
replaces nothing. So it stays visible if somebody plays a scenario again until it holds.
"""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chaos.errors import ChaosError
from chaos.suite.audits import IDENTICAL, LEFT_OUT, NOT_RUN, NOTHING
from lab.commit import CHANGED, UNKNOWN

__all__ = ["AUDITED", "Row", "continued", "load", "merge", "save"]


AUDITED = (IDENTICAL, LEFT_OUT, NOTHING)
"""Verdicts of the audit with which a scenario can have held."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """The results of a scenario in one run.

    Attributes:
        scenario, group, does: name, group and description of the scenario, as registered.
        version: version of Kafka, or both versions.
        brokers: number of brokers of each cluster.
        command: command line of the run.
        at: when the scenario began (UTC).
        load: load average of the machine when it ended, since recoveries take longer on a busy machine. 0: not known.
        seconds: duration in seconds.
        repetitions: number of repetitions that have struck, by the evidence.
        tries: number of tries, whether they have struck or not.
        wanted: number of repetitions that were wanted.
        evidence: the evidence that each repetition needs, in words.
        lacked: for each try that did not strike, the evidence that it lacked, in words.
        records: number of source records that were compared.
        prefixes: number of source records that were compared with the copies of halted partitions.
        lost, doubled, misplaced: numbers of such records.
        uncompared: number of stages that failed before both sides were compared.
        halted: reason -> number of expected halts.
        recover_s: recovery times in seconds.
        audit: verdict of the audit, or one of the other texts of ``chaos.suite.audits``.
        audited, topics: number of topics in the audit, and of all topics.
        problems: everything that was wrong, in words.
        figures: measurements, in words.
        notes: other thing that was counted -> how often.
        commit: commit of the code; several if the files have changed during the run.
        run: when the run began (UTC). It is the same for all rows of a complete run.
        again: True if the scenario was played by itself; False if it was part of a complete run.
        held: True if there was no problem, all wanted repetitions have struck, and the audit found both sides identical
            (or the run is without audits, or there was nothing to audit).
    """

    scenario: str
    group: str
    does: str
    version: str
    brokers: int
    command: str
    at: str
    seconds: float = 0.0
    load: float = 0.0
    repetitions: int = 0
    tries: int = 0
    wanted: int = 0
    evidence: list[str] = dataclasses.field(default_factory=list)
    lacked: list[str] = dataclasses.field(default_factory=list)
    records: int = 0
    prefixes: int = 0
    lost: int = 0
    doubled: int = 0
    misplaced: int = 0
    uncompared: int = 0
    halted: dict[str, int] = dataclasses.field(default_factory=dict)
    recover_s: list[float] = dataclasses.field(default_factory=list)
    audit: str = NOT_RUN
    audited: int = 0
    topics: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)
    figures: list[str] = dataclasses.field(default_factory=list)
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    commit: str = ""
    run: str = ""
    again: bool = False

    @property
    def held(self) -> bool:
        return not self.problems and self.repetitions >= self.wanted and self.audit in AUDITED


def load(path: Path) -> list[Row]:
    """Returns the rows of a file; empty if there is no such file, or if its rows have other fields."""
    try:
        return [Row(**row) for row in json.loads(path.read_text())["rows"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def merge(old: Iterable[Row], new: Iterable[Row], order: Iterable[str]) -> list[Row]:
    """Merges old and new rows. A new row replaces an old one of the same scenario and run. The rows of the complete run
    come first, in the order of ``order``; then those that were played by themselves, in order of time."""
    rows = list({(row.run, row.again, row.scenario): row for row in [*old, *new]}.values())
    place = {name: at for at, name in enumerate(order)}
    whole = sorted((row for row in rows if not row.again), key=lambda row: place.get(row.scenario, len(place)))
    return whole + sorted((row for row in rows if row.again), key=lambda row: (row.run, row.at))


def continued(old: Iterable[Row], *, command: str, commit: str) -> list[Row]:
    """Returns the finished rows of a complete run that is to be continued.

    Rows that are not audited yet are left out, so that these scenarios are played once more. The same holds for rows of
    other commits, which were played while files were changed. If such a row did not hold, the run cannot be continued:
    otherwise a scenario could be played again until it holds.

    Args:
        old: the rows of the run.
        command: command line of the present run.
        commit: present commit of the code.

    Raises:
        ChaosError: there is no such run; it is of another commit, or the commit is not known; it was begun with another
            command; or a row of another commit did not hold.
    """
    rows = [row for row in old if not row.again]
    anew = "leave CHAOS_CONTINUE out to begin a complete run anew"
    if not rows:
        raise ChaosError("there is no complete run to continue", anew)
    begun = rows[0].commit.partition(" to ")[0]
    if commit == UNKNOWN:
        raise ChaosError("of which commit these files are is not known", f"see why git fails here; or {anew}")
    if CHANGED in commit:
        raise ChaosError(
            f"the files are of commit {commit}, which does not say whether they are those of the run",
            f"take the changes back or commit them elsewhere (git stash), so that all is as at {begun}, and "
            f"CHAOS_CONTINUE=1 goes on; or {anew}",
        )
    same = [row for row in rows if row.commit == commit]
    if not same:
        known = CHANGED not in begun and begun != UNKNOWN
        way = f"check out {begun}, and CHAOS_CONTINUE=1 goes on; or leave it out to begin a complete run anew"
        raise ChaosError(f"the run was begun at commit {begun}, and this is {commit}", way if known else anew)
    if failed := [row for row in rows if row.commit != commit and row.problems]:
        told = f"{failed[0].scenario} did not hold at {failed[0].commit}"
        raise ChaosError(f"{told}, and the rest of the run is of {commit}: it is not played until it holds", anew)
    if rows[0].command != command:
        raise ChaosError(f"the run was begun by `{rows[0].command}`, not by `{command}`", anew)
    return [row for row in same if row.audit != NOT_RUN or row.problems]


def save(rows: Iterable[Row], path: Path) -> None:
    """Writes rows into a file, atomically."""
    content: dict[str, Any] = {"rows": [{**dataclasses.asdict(row)} for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content, indent=1) + "\n")
    fresh.replace(path)
