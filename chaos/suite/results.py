"""The results of what was run, as rows, kept in chaos.json (``chaos.suite.publishing``).

There is one complete run; a later one takes its place. A scenario that is played again alone is a row of its own beside
it, and replaces nothing: playing a scenario until it holds remains visible.
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
"""What an audit has to say of a scenario that held."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """One scenario as it was run last.

    Attributes:
        scenario, group, does: as registered.
        version: of Kafka.
        brokers: of each cluster.
        command: the command line of its run.
        at: when it began, UTC.
        load: the machine's load average when it ended; recovery takes longer on a busy one. 0: not known.
        seconds: how long it took.
        repetitions: number of repetitions that struck, by the evidence.
        tries: number carried out, whether they struck or not.
        wanted: repetitions asked for.
        evidence: the evidence that it struck, in words.
        lacked: evidence that each try lacked that did not strike, in words.
        records: number compared.
        prefixes: records compared of partitions that halted, up to the halt.
        lost, doubled, misplaced: numbers of them.
        uncompared: number of stages that failed before both sides were compared.
        halted: intended halts by reason.
        recover_s: seconds of recovery, of each repetition.
        audit: identical, different, not run, left out of the run, nothing to audit, or why it could not be run.
        audited, topics: how many topics the audit covered, of how many.
        problems: everything that was wrong.
        figures: measurements, in words.
        notes: counts of other things.
        commit: of the code.
        run: when its run began, UTC; all scenarios of a complete run have the same.
        again: True if it was played alone, and not as part of a complete run.
        held: True if there was no problem, all wanted repetitions struck, and the audit says identical, if the run has
            one, and there was something to audit.
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
    """Returns the rows of earlier runs; none if there is no file, or one of another shape."""
    try:
        return [Row(**row) for row in json.loads(path.read_text())["rows"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def merge(old: Iterable[Row], new: Iterable[Row], order: Iterable[str]) -> list[Row]:
    """Merge old and new rows: a new row replaces an old one of the same run. The complete run's rows come first, in the
    order of the register, then those played again, in the order of time."""
    rows = list({(row.run, row.again, row.scenario): row for row in [*old, *new]}.values())
    place = {name: at for at, name in enumerate(order)}
    whole = sorted((row for row in rows if not row.again), key=lambda row: place.get(row.scenario, len(place)))
    return whole + sorted((row for row in rows if row.again), key=lambda row: (row.run, row.at))


def continued(old: Iterable[Row], *, command: str, commit: str) -> list[Row]:
    """Returns the finished rows of the complete run that is continued. Those not audited yet are played once more, and
    so is what was played while files were changed, unless it did not hold: that is not played until it does.

    Raises:
        ChaosError: there is none, or none of its rows is of this commit, or it was begun by another command.
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
    """Write the file atomically."""
    content: dict[str, Any] = {"rows": [{**dataclasses.asdict(row)} for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content, indent=1) + "\n")
    fresh.replace(path)
