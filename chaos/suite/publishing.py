"""Where the results of a run go.

Rows are kept from the first on, in the folder where the run works: a complete run's in ``build/chaos.json``, so that it
can go on if it is interrupted, and those of scenarios that are played by themselves in ``build/alone.json``.
``docs/results/failures.md``, and the rows that it was made from in ``chaos/out/chaos.json``, change only when a
complete run has come to its end, its last audit included, or when a scenario that was played by itself has a row beside
a complete run's. Where that run's rows are not at hand, because it was on another machine, the row goes into its report
all the same (``report.beside``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.scenario import Scenario
from chaos.suite import report, results
from chaos.suite.plan import Plan
from chaos.suite.results import Row

__all__ = ["WRITTEN", "Publishing"]

_ROWS = Path("chaos/out/chaos.json")
_REPORT = Path("docs/results/failures.md")
WRITTEN = (str(_ROWS.parent), str(_REPORT))
"""Files that a run writes, which are no change of the code."""


class Publishing:
    """Keeps the rows of one run of the suite.

    Args:
        plan: of the run.
        scenarios: all that there are: a complete run has a row of each.
        root: of the project.

    Attributes:
        report: the path of the report that was written last.
        rows: the path of its rows.
    """

    def __init__(self, plan: Plan, scenarios: Mapping[str, Scenario], root: Path = Path()) -> None:
        self._plan = plan
        self._scenarios = scenarios
        folder = root / plan.out
        self._whole, self._alone = folder / "chaos.json", folder / "alone.json"
        self._published = (root / _REPORT, root / _ROWS)
        self.report, self.rows = folder / "failures.md", self._whole if plan.is_whole else self._alone

    def before(self) -> list[Row]:
        """Returns the rows of the run that is continued, or of what this one's stand beside: none for a new complete
        run."""
        if self._plan.is_whole:
            return _of_a_run(results.load(self._whole)) if self._plan.continues else []
        if self._plan.public:
            return results.load(self._published[1]) or results.load(self._alone)
        return _of_a_run(results.load(self._whole)) + results.load(self._alone)

    def is_over(self, kept: Sequence[Row]) -> bool:
        """Returns True if nothing is left to do of a complete run of which these rows are finished."""
        if {row.scenario for row in kept} < self._scenarios.keys():
            return False
        published = _of_a_run(results.load(self._published[1]))
        return not self._plan.public or (bool(published) and published[0].run == kept[0].run)

    def keep(self, known: Sequence[Row]) -> None:
        """Write the rows that this run's file has, and a report of all, where the run works."""
        results.save([row for row in known if row.again is not self._plan.is_whole], self.rows)
        self._write(known)

    def publish(self, known: Sequence[Row]) -> None:
        """Publish the rows of a run that has come to its end, unless it is not for that."""
        if not self._plan.public:
            return
        if self._plan.is_whole:
            # What was played by itself while this run was interrupted stands beside it.
            beside = [row for row in results.load(self._alone) if row.again and row.run > known[0].run]
            known = results.merge(known, beside, self._scenarios)
        elif not _of_a_run(known):
            self._beside(known)
            return
        self.report, self.rows = self._published
        self._write(known)  # the rows come last: while they are not there, the run can be continued
        results.save(known, self.rows)

    def _write(self, known: Sequence[Row]) -> None:
        self.report.parent.mkdir(parents=True, exist_ok=True)
        self.report.write_text(report.markdown(known, self._scenarios))

    def _beside(self, again: Sequence[Row]) -> None:
        """Write the rows of what was played by itself into the report of a complete run without rows, if there is
        one."""
        document, rows = self._published
        text = report.beside(document.read_text(), again) if document.exists() else None
        if text is not None:
            self.report, self.rows = self._published
            results.save(again, rows)
            document.write_text(text)


def _of_a_run(rows: Sequence[Row]) -> list[Row]:
    """Returns those of a complete run."""
    return [row for row in rows if not row.again]
