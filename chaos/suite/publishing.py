"""Where the results of a run go.

Rows are kept in ``build/chaos.json`` from the first on, so that an interrupted run can go on.
``docs/results/failures.md``, and the rows that it was made from in ``chaos/out/chaos.json``, change only when a
complete run has come to its end, or when a scenario that was played again has a row beside a complete run's. Where that
run's rows are not at hand, because it was on another machine, the row goes into its report all the same
(``report.beside``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.scenario import Scenario
from chaos.suite import report, results
from chaos.suite.plan import PUBLISHED, Plan
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
        self._working = root / plan.out / "chaos.json"
        self._is_public = plan.out == PUBLISHED
        self._published = (root / _REPORT, root / _ROWS)
        self.report, self.rows = root / plan.out / "failures.md", self._working

    def before(self) -> list[Row]:
        """Returns the rows of earlier runs: of the one that is continued, or of what this one's stand beside."""
        if self._plan.continues or not self._is_public:
            return results.load(self._working)
        return results.load(self._published[1]) or results.load(self._working)

    def keep(self, known: Sequence[Row]) -> None:
        """Write all rows, and the report of them."""
        results.save(known, self._working)
        if self._is_public and {row.scenario for row in known if not row.again} >= self._scenarios.keys():
            self.report, self.rows = self._published
            results.save(known, self.rows)
        elif self._is_public and self._beside(known):
            return
        self.report.parent.mkdir(parents=True, exist_ok=True)
        self.report.write_text(report.markdown(known, self._scenarios))

    def _beside(self, known: Sequence[Row]) -> bool:
        """Write the rows of what was played by itself into the report of a complete run without rows, if there is one.
        Returns True if there is."""
        document, rows = self._published
        again = [row for row in known if row.again and row.tries]
        if len(again) < len(known) or not document.exists():
            return False
        text = report.beside(document.read_text(), again)
        if text is None:
            return False
        self.report, self.rows = self._published
        results.save(again, rows)
        document.write_text(text)
        return True
