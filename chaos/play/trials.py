"""The repetitions of a fault on one stage. Each is a try, which counts if all of the scenario's evidence was seen."""

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
"""How late evidence may be noted, in seconds: for example a supervisor's log line, or a broker's answer."""


class Played(Protocol):
    """The part of a stage that this module needs."""

    scenario: Scenario
    repetitions: int
    outcome: Outcome

    @property
    def records(self) -> Sequence[Record]:
        """All records with evidence of the fault."""

    def look(self) -> None:
        """Reads the mirrors' output."""


class Trials:
    """Counts the tries on one stage, and those that have struck.

    Args:
        stage: the stage. Its outcome gets the counts.
        settle_s: how long it may take until evidence is noted.
    """

    def __init__(self, stage: Played, *, settle_s: float = SETTLE_S) -> None:
        self._stage = stage
        self._settle_s = settle_s
        self._began_at = 0.0

    def begin(self) -> None:
        """Begins a try. Evidence that is seen from now on belongs to it, so earlier output of the mirrors is read
        first."""
        self._stage.look()
        self._began_at = time.monotonic()

    def repeat(self) -> Iterator[int]:
        """Yields until the fault has struck often enough, for ``for at in stage.repeat()``. The value is the number of
        strikes so far: a try that does not strike is made again with the same number.

        If a try cannot be made again on the same stage (``Scenario.anew``), the loop ends, and a new stage is made.

        Raises:
            ChaosError: ``TRIES`` tries in a row did not strike.
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
        """Counts a try, or several that were made together, and how many of them have struck.

        Args:
            count: number of tries.
            once: evidence that is needed only once for all of them. Without it, none has struck.
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
        """Returns for how many tries the evidence that was seen is enough."""
        return self.seen()[what.name] // what.least

    def seen(self) -> Counter[str]:
        """Returns name of the evidence -> how often it was seen since this try began."""
        found: Counter[str] = Counter()
        for record in self._stage.records:
            found += record.since(self._began_at)
        return found


def did_not_strike(missed: Sequence[str]) -> str:
    """Returns the text of the problem that a fault did not strike. ``missed``: the evidence that the last try
    lacked."""
    return f"the fault did not strike in {TRIES} tries: {', '.join(missed)}"
