"""The error of an audit that could not finish: a problem and its remedy, carried through Spark's workers as text."""

import json
import re
from typing import Self

_OPEN, _CLOSE = "<<mirror-audit:", ":mirror-audit>>"
_MARKED = re.compile(re.escape(_OPEN) + "(.*?)" + re.escape(_CLOSE), re.DOTALL)


class AuditError(Exception):
    """The audit cannot give a verdict. ``problem`` names the thing and the place; ``remedy`` says what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy

    def marked(self) -> str:
        """Returns the error as text that survives being wrapped in a Python traceback and a Java exception."""
        return _OPEN + json.dumps([self.problem, self.remedy]) + _CLOSE

    @classmethod
    def unmarked(cls, text: str) -> Self | None:
        """Returns the first error that ``marked`` put into this text, or None."""
        found = _MARKED.search(text)
        if found is None:
            return None
        problem, remedy = json.loads(found[1])
        return cls(problem, remedy)


def interrupted(error: BaseException | None) -> bool:
    """Returns True if the user interrupted the audit. py4j's own handling may raise another error on top of the
    interrupt, so the whole chain of causes is searched."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
