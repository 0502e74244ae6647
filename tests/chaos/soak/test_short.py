"""The short form of ``make soak``: five rounds in two minutes, in which all is done that is done in an hour."""

import pytest

from chaos.soak.plan import Plan
from chaos.soak.run import run
from lab.console import Progress
from lab.evidence import RELOADED, WORKER_ENDED, WORKER_REPLACED

ROUNDS = 5
"""How often is done what takes a minute in a long soak. With fewer, one descriptor that leaks each round is not seen
(``samples.SPARE``)."""
RELOAD_S = 3.0
"""Between two changes: a round takes 18 s, or longer on a slow machine."""


@pytest.mark.broker
@pytest.mark.timeout(860)  # less than faulthandler_timeout, after which the whole process goes
def test_five_rounds() -> None:
    """
    1. Each round, a worker ends by SIGTERM and is replaced; each three seconds, the configuration is another one, and
       the mirror shows that it is.
    2. The supervisor and the other worker live on, and neither their memory nor their descriptors grow.
    3. The copy is identical, record by record and by the audit.
    """
    plan = Plan(minutes=ROUNDS, reload_s=RELOAD_S)
    with Progress() as progress:
        result = run(plan, progress)
    assert result.problems == []
    assert result.struck[WORKER_ENDED.name] == result.struck[WORKER_REPLACED.name] == ROUNDS
    assert result.struck[RELOADED.name] == plan.reloads == len(result.samples)
    assert result.audit == "identical"
    assert result.records > 1_000
