"""The short form of ``make soak``: five minutes, in which all is done that is done in an hour."""

import pytest

from chaos.soak.plan import Plan
from chaos.soak.run import run
from lab.console import Progress
from lab.evidence import RELOADED, WORKER_ENDED, WORKER_REPLACED

MINUTES = 5


@pytest.mark.broker
@pytest.mark.timeout(860)  # less than faulthandler_timeout, after which the whole process goes
def test_five_minutes() -> None:
    """
    1. Each minute, a worker ends by SIGTERM and is replaced; each ten seconds, the configuration is another one, and
       the mirror shows that it is.
    2. The supervisor and the other worker live on, and neither their memory nor their descriptors grow.
    3. The copy is identical, record by record and by the audit.
    """
    plan = Plan(minutes=MINUTES)
    with Progress() as progress:
        result = run(plan, progress)
    assert result.problems == []
    assert result.struck[WORKER_ENDED.name] == result.struck[WORKER_REPLACED.name] == MINUTES
    assert result.struck[RELOADED.name] == plan.reloads == len(result.samples)
    assert result.audit == "identical"
    assert result.records > 1_000
