"""Processes of the mirror die, freeze, and meet each other."""

from chaos.scenario import scenario
from chaos.stage import Stage

GROUP = "Processes"


@scenario("worker-kill", group=GROUP, full=50, quick=2, per_stage=10, does="kill -9 of a worker at a random moment")
def worker_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        stage.mirror.kill_worker()
        stage.recovered()
