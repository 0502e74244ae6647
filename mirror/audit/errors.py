"""Why an audit could not finish: a problem and its remedy, carried through Spark's workers as text."""

import json
import re
from typing import Self

_OPEN, _CLOSE = "<<mirror-audit:", ":mirror-audit>>"
_MARKED = re.compile(re.escape(_OPEN) + "(.*?)" + re.escape(_CLOSE), re.DOTALL)


class AuditError(Exception):
    """The audit cannot give a verdict. ``problem`` names the thing and the place, ``remedy`` what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy

    def marked(self) -> str:
        """The error as text that survives being wrapped in a Python traceback and a Java exception."""
        return _OPEN + json.dumps([self.problem, self.remedy]) + _CLOSE

    @classmethod
    def unmarked(cls, text: str) -> Self | None:
        """The first error that ``marked`` put into this text, None if there is none."""
        found = _MARKED.search(text)
        if found is None:
            return None
        problem, remedy = json.loads(found[1])
        return cls(problem, remedy)


def interrupted(error: BaseException | None) -> bool:
    """Whether somebody has interrupted it. py4j's own handling may meet another error, which hides the interrupt."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
