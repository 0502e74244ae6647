"""What was run, as rows: kept in chaos.json, a later run replaces the rows of its own scenarios."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["Row", "load", "merge", "save"]


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """One scenario as it was run last.

    Attributes:
        scenario, group, does: as registered.
        version: of Kafka.
        brokers: of each cluster.
        command: what was typed.
        at: when it began, UTC.
        load: the machine's load average when it ended; recovery takes longer on a busy one. 0: not known.
        seconds: how long it took.
        repetitions: of the fault that struck, by the evidence.
        tries: carried out, whether they struck or not.
        wanted: repetitions asked for.
        evidence: what shows that it struck, in words.
        records: compared.
        prefixes: records compared of partitions that halted, up to the halt.
        lost, doubled, misplaced: of them.
        halted: intended halts by reason.
        recover_s: of each repetition.
        audit: identical, different, not run, or why it could not be run.
        audited, topics: how many topics the audit covered, of how many.
        problems: everything that was not as it should be.
        figures: what was measured, in words.
        notes: counts of other things.
        held: no problem, and the audit (if run) says identical.
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
    records: int = 0
    prefixes: int = 0
    lost: int = 0
    doubled: int = 0
    misplaced: int = 0
    halted: dict[str, int] = dataclasses.field(default_factory=dict)
    recover_s: list[float] = dataclasses.field(default_factory=list)
    audit: str = "not run"
    audited: int = 0
    topics: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)
    figures: list[str] = dataclasses.field(default_factory=list)
    notes: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def held(self) -> bool:
        return not self.problems and self.repetitions >= self.wanted and self.audit in ("identical", "not run")


def load(path: Path) -> list[Row]:
    """The rows of earlier runs; none if there is no file, or one of another shape."""
    try:
        return [Row(**row) for row in json.loads(path.read_text())["rows"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def merge(old: Iterable[Row], new: Iterable[Row], order: Iterable[str]) -> list[Row]:
    """New rows take the place of old ones; in the order of the register, without scenarios that are no more."""
    rows = {row.scenario: row for row in [*old, *new]}
    return [rows[name] for name in order if name in rows]


def save(rows: Iterable[Row], path: Path) -> None:
    """Write the file in one step."""
    content: dict[str, Any] = {"rows": [{**dataclasses.asdict(row)} for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content, indent=1) + "\n")
    fresh.replace(path)
