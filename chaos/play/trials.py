"""The repetitions of a fault on one stage: each is a try, and counts if all of the scenario's evidence was seen."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from chaos.errors import ChaosError
from chaos.scenario import TRIES, Scenario
from chaos.suite.outcome import Outcome
from chaos.waiting import NOW_AND_THEN_S
from lab.evidence import Evidence, Record, missing

__all__ = ["Trials", "did_not_strike"]

SETTLE_S = 15.0
"""Evidence may be noted this late: a supervisor's log line, a broker's answer."""


class Played(Protocol):
    """The part of the stage that is needed."""

    scenario: Scenario
    repetitions: int
    outcome: Outcome

    @property
    def records(self) -> Sequence[Record]:
        """The records of everything that notes evidence of the fault."""

    def look(self) -> None:
        """Read the mirrors' output."""


class Trials:
    """See the module's docstring.

    Args:
        stage: its outcome gets the counts.
        settle_s: how long evidence may take to be noted.
    """

    def __init__(self, stage: Played, *, settle_s: float = SETTLE_S) -> None:
        self._stage = stage
        self._settle_s = settle_s
        self._began_at = 0.0

    def begin(self) -> None:
        """Begin a try: evidence seen from now on belongs to it. What was said before is read first."""
        self._stage.look()
        self._began_at = time.monotonic()

    def repeat(self) -> Iterator[int]:
        """Repeat (``for at in stage.repeat()``) until the fault has struck often enough. ``at`` counts the tries
        that struck: a try that did not is made again with the same number.

        If a try cannot be made again on the same stage (``Scenario.anew``), the loop ends, and a new stage is made.

        Raises:
            ChaosError: it did not strike, too often in a row.
        """
        out, anew = self._stage.outcome, self._stage.scenario.anew
        missed = 0
        while out.repetitions < self._stage.repetitions:
            if not anew:
                self.begin()
            yield out.repetitions
            self.counted()
            if not out.missed:
                missed = 0
            elif anew:
                return
            elif (missed := missed + 1) == TRIES:
                raise ChaosError(did_not_strike(out.missed))

    def counted(self, count: int = 1, *, once: Sequence[Evidence] = ()) -> None:
        """Count one more try, or ``count`` made together, and those that struck.

        Args:
            count: number of tries.
            once: evidence that is needed once for all of them; without it, none has struck.
        """
        out, needed = self._stage.outcome, self._stage.scenario.struck
        all_of_them = [one if one in once else one.times(one.least * count) for one in needed]
        deadline_at = time.monotonic() + self._settle_s
        while (lacking := missing(all_of_them, self.seen())) and time.monotonic() < deadline_at:
            self._stage.look()
            time.sleep(NOW_AND_THEN_S)
        out.tries += count
        out.missed = lacking
        out.lacked += [", ".join(lacking)] * bool(lacking)
        out.repetitions += min(count, *(self._times(one) * (count if one in once else 1) for one in needed))

    def _times(self, what: Evidence) -> int:
        """Returns how often it was seen, in tries' worth."""
        return self.seen()[what.name] // what.least

    def seen(self) -> Counter[str]:
        """Returns the evidence seen since this try began, and how often."""
        found: Counter[str] = Counter()
        for record in self._stage.records:
            found += record.since(self._began_at)
        return found


def did_not_strike(missed: Sequence[str]) -> str:
    """Returns the problem of a fault that did not strike, in words."""
    return f"the fault did not strike in {TRIES} tries: {', '.join(missed)}"
