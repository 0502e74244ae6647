"""The environment variables that choose what a run does.

CHAOS_QUICK=1      every scenario once (half an hour, more on a slow machine)
CHAOS_ONLY=REGEX   only scenarios whose name or group it matches somewhere; each becomes a row of its own beside the
                   results of a complete run
CHAOS_CONTINUE=1   goes on with a complete run that was interrupted, of the same code and with the same settings
CHAOS_REPEAT=N     repetitions of every scenario, instead of its own numbers
CHAOS_SEED=N       the seed of random nemeses: N for a scenario's first try, N + 1 for the next, and so on. The row
                   shows it; by default another one in each run. Scenarios of one seed have different schedules
CHAOS_WORKERS=N    workers of every mirror (a scenario that needs more has more)
CHAOS_PACE=0.4     the writers' rates, as a part of the scenarios' own (1; in a quick run 0.35): for a machine
                   whose mirrors cannot keep up with them, where each recovery would wait for a backlog
CHAOS_WRITERS=A,B  only topics of these producers: idempotent, transactional, keyed, java, verifiable, copier,
                   nobody
CHAOS_TRACKS=N     number of scenarios in parallel, each with clusters of its own (2 in a quick run, else 1)
CHAOS_AUDIT=0      without the Spark audit; the results say so
CHAOS_OUT=FOLDER   for the rows (chaos.json of a complete run, alone.json of CHAOS_ONLY), failures.md and the mirrors'
                   logs, instead of build; or instead of build/chaos-aside, which has the runs that are not published:
                   quick ones, and those with other repetitions, writers or workers, or without the audit

A complete run in build that has come to its end is published: docs/results/failures.md, and its rows in
chaos/out/chaos.json.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.errors import ChaosError
from chaos.scenario import Scenario

__all__ = ["PUBLISHED", "Plan", "from_environment"]

PUBLISHED = Path("build")
"""Working folder of a run whose results are published in the end."""
_ASIDE = Path("build/chaos-aside")
_SEEDS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run does; see the module's docstring.

    Attributes:
        seeded: True if the environment gives the seed; False if it was drawn at random.
        public: True if the results are published in the end: the run is not narrowed, and works in ``PUBLISHED``.
    """

    quick: bool = False
    only: str = ""
    repeat: int = 0
    seed: int = 0
    seeded: bool = False
    workers: int = 1
    pace: float | None = None
    writers: frozenset[str] | None = None
    tracks: int = 1
    audit: bool = True
    continues: bool = False
    out: Path = PUBLISHED
    public: bool = False

    @property
    def command(self) -> str:
        """The command line that repeats this run."""
        parts = ["CHAOS_QUICK=1"] * self.quick + [f"CHAOS_ONLY='{self.only}'"] * bool(self.only)
        parts += [f"CHAOS_REPEAT={self.repeat}"] * bool(self.repeat) + [f"CHAOS_WORKERS={self.workers}"] * (
            self.workers > 1
        )
        parts += [f"CHAOS_SEED={self.seed}"] * self.seeded
        parts += [] if self.pace is None else [f"CHAOS_PACE={self.pace:g}"]
        parts += [f"CHAOS_WRITERS={','.join(sorted(self.writers))}"] if self.writers else []
        parts += [f"CHAOS_TRACKS={self.tracks}"] * (self.tracks != _usual_tracks(quick=self.quick))
        parts += [] if self.audit else ["CHAOS_AUDIT=0"]
        return " ".join([*parts, "make chaos"])

    @property
    def is_whole(self) -> bool:
        """True for a complete run, which plays every scenario."""
        return not self.only

    def select(self, scenarios: Mapping[str, Scenario]) -> list[Scenario]:
        """Returns the scenarios of this run.

        Raises:
            ChaosError: no scenario matches.
        """
        wanted = re.compile(self.only)
        found = [one for one in scenarios.values() if wanted.search(one.name) or wanted.search(one.group)]
        if not found:
            raise ChaosError(f"no scenario matches {self.only}", f"the names are {', '.join(scenarios)}")
        return found

    def repetitions(self, one: Scenario) -> int:
        """Returns the number of repetitions of a scenario's fault."""
        return self.repeat or (one.quick if self.quick else one.full)


def from_environment(environ: Mapping[str, str]) -> Plan:
    """Returns the plan that the environment variables describe.

    Raises:
        ChaosError: a value is invalid.
    """
    only = environ.get("CHAOS_ONLY", "")
    try:
        re.compile(only)
    except re.error as error:
        raise ChaosError(f"CHAOS_ONLY={only} is no regular expression: {error}", "give part of a name") from error
    quick = environ.get("CHAOS_QUICK", "") not in ("", "0")
    continues = environ.get("CHAOS_CONTINUE", "") not in ("", "0")
    if only and continues:
        raise ChaosError("CHAOS_CONTINUE goes on with a complete run, and CHAOS_ONLY is none", "leave one of them out")
    narrowed = ("CHAOS_REPEAT", "CHAOS_WORKERS", "CHAOS_WRITERS")
    aside = quick or any(environ.get(name) for name in narrowed) or environ.get("CHAOS_AUDIT", "1") == "0"
    out = Path(environ.get("CHAOS_OUT", "") or (_ASIDE if aside else PUBLISHED))
    return Plan(
        quick=quick,
        only=only,
        continues=continues,
        repeat=_number(environ, "CHAOS_REPEAT", 0),
        seed=_number(environ, "CHAOS_SEED", random.randrange(_SEEDS)),
        seeded=bool(environ.get("CHAOS_SEED", "")),
        workers=_number(environ, "CHAOS_WORKERS", 1),
        pace=_part(environ, "CHAOS_PACE"),
        writers=frozenset(environ["CHAOS_WRITERS"].split(",")) if environ.get("CHAOS_WRITERS") else None,
        tracks=max(1, _number(environ, "CHAOS_TRACKS", _usual_tracks(quick=quick))),
        audit=environ.get("CHAOS_AUDIT", "1") != "0",
        out=out,
        public=not aside and out == PUBLISHED,
    )


def _usual_tracks(*, quick: bool) -> int:
    """Returns the default number of tracks: 2 for a quick run; 1 for a full run, which measures recoveries and must not
    be disturbed by other scenarios."""
    return 2 if quick else 1


def _part(environ: Mapping[str, str], key: str) -> float | None:
    """Returns the value of an environment variable, above 0 and at most 1; None if it is not set."""
    text = environ.get(key, "")
    if not text:
        return None
    try:
        part = float(text)
    except ValueError:
        part = 0.0
    if not 0 < part <= 1:
        raise ChaosError(f"{key}={text} is no part of a rate", "give a number above 0, and 1 at most")
    return part


def _number(environ: Mapping[str, str], key: str, usual: int) -> int:
    text = environ.get(key, "")
    if not text:
        return usual
    if not text.isdecimal():
        raise ChaosError(f"{key}={text} is no number", "give a whole number")
    return int(text)
