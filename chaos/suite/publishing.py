"""The files into which the results of a run are written.

Rows are saved from the first one on, in the run's working folder: those of a complete run in ``build/chaos.json``, so
that it can go on after an interruption, and those of scenarios that are played by themselves in ``build/alone.json``.

``docs/results/failures.md`` and its rows in ``chaos/out/chaos.json`` change only when a complete run has come to its
end, its last audit included, or when a scenario that was played by itself gets a row beside a complete run. If the rows
of that complete run are not at hand, because it was on another machine, the row is still added to its report
(``report.beside``).
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
"""Files that a run itself writes. They do not count as changes of the code."""


class Publishing:
    """Saves and publishes the rows of one run of the suite.

    Args:
        plan: plan of the run.
        scenarios: all scenarios. A complete run has a row for each.
        root: root folder of the project.

    Attributes:
        report: path of the report that was written last.
        rows: path of its rows.
    """

    def __init__(self, plan: Plan, scenarios: Mapping[str, Scenario], root: Path = Path()) -> None:
        self._plan = plan
        self._scenarios = scenarios
        folder = root / plan.out
        self._whole, self._alone = folder / "chaos.json", folder / "alone.json"
        self._published = (root / _REPORT, root / _ROWS)
        self.report, self.rows = folder / "failures.md", self._whole if plan.is_whole else self._alone

    def before(self) -> list[Row]:
        """Returns the rows of earlier runs that stay: for a complete run, those of the run that is continued (none for
        a new run); for scenarios that are played by themselves, the rows beside which theirs stand."""
        if self._plan.is_whole:
            return _of_a_run(results.load(self._whole)) if self._plan.continues else []
        if self._plan.public:
            return results.load(self._published[1]) or results.load(self._alone)
        return _of_a_run(results.load(self._whole)) + results.load(self._alone)

    def is_over(self, kept: Sequence[Row]) -> bool:
        """Returns True if a complete run is finished and published. ``kept``: its finished rows."""
        if {row.scenario for row in kept} < self._scenarios.keys():
            return False
        published = _of_a_run(results.load(self._published[1]))
        return not self._plan.public or (bool(published) and published[0].run == kept[0].run)

    def keep(self, known: Sequence[Row]) -> None:
        """Saves rows and report in the working folder. ``known``: all rows, of which the file has those of this kind of
        run."""
        results.save([row for row in known if row.again is not self._plan.is_whole], self.rows)
        self._write(known)

    def publish(self, known: Sequence[Row]) -> None:
        """Publishes the rows of a run that has come to its end, if its plan is public."""
        if not self._plan.public:
            return
        if self._plan.is_whole:
            # Scenarios that were played by themselves while this run was interrupted keep their rows beside it.
            beside = [row for row in results.load(self._alone) if row.again and row.run > known[0].run]
            known = results.merge(known, beside, self._scenarios)
        elif not _of_a_run(known):
            self._beside(known)
            return
        self.report, self.rows = self._published
        self._write(known)  # the report first: as long as the rows are not saved, the run can be continued
        results.save(known, self.rows)

    def _write(self, known: Sequence[Row]) -> None:
        self.report.parent.mkdir(parents=True, exist_ok=True)
        self.report.write_text(report.markdown(known, self._scenarios))

    def _beside(self, again: Sequence[Row]) -> None:
        """Adds rows of scenarios that were played by themselves to the report of a complete run whose rows are not at
        hand. Does nothing if there is no such report."""
        document, rows = self._published
        text = report.beside(document.read_text(), again) if document.exists() else None
        if text is not None:
            self.report, self.rows = self._published
            results.save(again, rows)
            document.write_text(text)


def _of_a_run(rows: Sequence[Row]) -> list[Row]:
    """Returns only the rows of a complete run."""
    return [row for row in rows if not row.again]
