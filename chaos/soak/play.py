"""The act of a soak: at a steady pace, looks at the mirror, changes its configuration, and restarts one of its
workers."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.errors import ChaosError
from chaos.play.mirrors import MirrorProcess
from chaos.scenario import Scenario, Shape
from chaos.soak.plan import BESIDE_TOPIC, CYCLE, TOPICS, Change, Plan, beginning, changed
from chaos.soak.samples import Sample
from chaos.soak.watching import Looks, granularity
from chaos.waiting import NOW_AND_THEN_S, until
from lab.evidence import RELOADED, WORKER_ENDED, WORKER_REPLACED
from mirror.service.http import client

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["Soak", "scenario"]

_RESTART_BEHIND = 1
"""Index in ``CYCLE`` of the change behind which a worker is restarted, half-way to the next change."""


class Soak:
    """Carries out a plan. ``act`` is the act of a scenario.

    Args:
        plan: the plan.

    Attributes:
        samples: the samples taken so far.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.samples: list[Sample] = []
        self._due_at = 0.0

    def act(self, stage: "Stage") -> None:
        """Carries out the whole plan.

        Raises:
            ChaosError: a change did not take effect, or a process has ended that must not.
        """
        mirror = self._begin(stage)
        looks = Looks(mirror)
        first: dict[str, Any] = json.loads(mirror.config.read_text())
        config = first
        began_at = self._due_at = time.monotonic()
        for number in range(self.plan.reloads):
            minute, phase = divmod(number, len(CYCLE))
            self._quiet(stage, looks)
            self.samples.append(looks.sample(minute=minute, phase=phase, at_s=time.monotonic() - began_at))
            config, change = changed(config, number, first)
            _write(mirror.config, json.dumps(config))
            self._reload(stage, looks, change)
            if phase == _RESTART_BEHIND:
                self._pause(stage, self.plan.reload_s / 2)
                self._restart(stage, mirror, looks)
                self._pause(stage, self.plan.reload_s / 2)
            else:
                self._pause(stage, self.plan.reload_s)
        self._quiet(stage, looks)

    def _begin(self, stage: "Stage") -> MirrorProcess:
        stage.create_topics()
        servers = {"source": stage.source.bootstrap_servers, "destination": stage.destination.bootstrap_servers}
        beside = stage.topic(BESIDE_TOPIC)
        mirror = stage.start_mirror(
            top={
                **beginning(servers, [name.name for name in stage.topics if name.name != beside], beside, stage.group),
                "group.id": "",
                "log.level": "info",
                "progress.interval.ms": 1_000,
            }
        )
        stage.start_stream()
        stage.flowing()
        return mirror

    def _pause(self, stage: "Stage", seconds: float) -> None:
        """Waits until some seconds after the last step was due. If that moment has passed, does not wait, and counts
        from now on."""
        self._due_at = max(self._due_at + seconds, time.monotonic())
        stage.pause(self._due_at - time.monotonic())

    def _quiet(self, stage: "Stage", looks: Looks) -> None:
        def quiet() -> bool:
            stage.look()
            if not looks.lives_on():
                raise ChaosError(f"another process is the supervisor, or the worker that was to live; {stage.told()}")
            return looks.quiet()

        until(quiet, lambda: f"both flows to run on both workers; {stage.told()}", every_s=NOW_AND_THEN_S)

    def _reload(self, stage: "Stage", looks: Looks, change: Change) -> None:
        """Requests a reload of the configuration, like ``mirror reload``, and checks that it takes effect."""
        try:
            answer = client.reload(looks.address)
        except (client.NotAnswered, client.NotDone) as error:
            raise ChaosError(f"not reloaded: {error}; {stage.told()}") from error
        # None: the mirror is still draining after a minute, although there is hardly anything to drain at this load.
        if answer is None or answer[change.kind] != [change.flow] or answer["need_restart"]:
            raise ChaosError(f"{change.flow} was to be {change.kind}, and `mirror reload` said {answer}")

        def in_effect() -> bool:
            stage.look()
            runs = change.flow in {flow["flow"] for flow in looks.status().get("flows", ())}
            return runs is (change.kind != "removed") and granularity(looks.metrics()) == change.granularity

        until(in_effect, lambda: f"{change} to be in effect; {stage.told()}", every_s=NOW_AND_THEN_S)
        stage.seen(RELOADED)

    def _restart(self, stage: "Stage", mirror: MirrorProcess, looks: Looks) -> None:
        before = looks.restarted()
        mirror.end_worker(before)

        def replaced() -> bool:
            stage.look()
            return looks.restarted() not in (0, before)

        until(replaced, lambda: f"another worker instead of {before}; {stage.told()}", every_s=NOW_AND_THEN_S)
        stage.seen(WORKER_REPLACED)


def _write(config: Path, text: str) -> None:
    """Replaces the file atomically, so that nobody reads half of it."""
    new = config.with_suffix(".new")
    new.write_text(text)
    os.replace(new, config)


def scenario(soak: Soak) -> Scenario:
    """Returns the soak as a scenario, which a stage can play."""
    plan = soak.plan
    return Scenario(
        name="soak", group="-", does="a steady load, workers restarted and the configuration changed", act=soak.act,
        struck=(WORKER_ENDED.times(plan.minutes), WORKER_REPLACED.times(plan.minutes), RELOADED.times(plan.reloads)),
        shape=Shape(brokers=1), topics=TOPICS, workers=2, rate=plan.rate, bare=True, acknowledged=True,
    )  # fmt: skip
