"""Each change of the configuration changes what it says, and nothing else, by the mirror's own word."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from chaos.play.mirrors import FLOW
from chaos.soak.plan import BESIDE, CYCLE, Change, Plan, beginning, changed
from mirror.service.config import load
from mirror.service.config.resolve import supervision
from mirror.service.flows.changes import Changes, changes
from mirror.service.worker_settings import Supervision

FIRST = beginning({"source": "127.0.0.1:1", "destination": "127.0.0.1:2"}, ["a", "b"], "c", "g")


def read(config: dict[str, Any], path: Path) -> Supervision:
    path.write_text(json.dumps(config))
    return supervision(load(path), workers=2, fail_fast=False)


def played(count: int, folder: Path) -> list[tuple[Change, Changes]]:
    config, done = FIRST, []
    running = read(config, folder / "mirror.yaml")
    for number in range(count):
        config, change = changed(config, number, FIRST)
        done.append((change, changes(running, read(config, folder / "mirror.yaml"))))
        running = done[-1][1].told
    return done


def test_every_change_is_the_one_that_it_says(tmp_path: Path) -> None:
    """Two minutes: in the second one, other values are needed."""
    done = played(2 * len(CYCLE), tmp_path)
    for change, made in done:
        assert getattr(made, change.kind) == (change.flow,)
        assert made.told.metrics_granularity == change.granularity
        others = {"added", "removed", "restarted", "limited"} - {change.kind}
        assert not any(getattr(made, other) for other in others)
        assert made.need_restart == ()
    granularities = [made.told.metrics_granularity for _, made in done]
    assert all(one != other for one, other in pairwise(granularities))


def test_all_kinds_are_played_and_both_flows_run_at_the_end_of_a_minute(tmp_path: Path) -> None:
    done = played(len(CYCLE), tmp_path)
    assert {change.kind for change, _ in done} == {"added", "removed", "restarted", "limited"}
    assert [flow.flow for flow in done[-1][1].told.flows] == [FLOW, BESIDE]


def test_the_first_configuration_is_left_as_it_is(tmp_path: Path) -> None:
    before = json.dumps(FIRST)
    played(len(CYCLE), tmp_path)
    assert json.dumps(FIRST) == before


def test_six_changes_a_minute_for_an_hour() -> None:
    plan = Plan()
    assert plan.reloads * plan.reload_s == plan.minutes * 60 == 3600
