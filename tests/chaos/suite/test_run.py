"""What a run makes of stages and audits, without any clusters."""

from dataclasses import replace
from typing import Any

import pytest

from chaos.scenario import SCENARIOS, TRIES
from chaos.suite import audits, results
from chaos.suite.outcome import Outcome
from chaos.suite.plan import Plan
from chaos.suite.run import run
from tests.chaos.suite.fakes import NAMES, FakeStage, Told, rows_of


def test_all_hold(broken: set[str], plan: Plan) -> None:
    told = Told()
    assert all(row.held for row in run(plan, told))
    assert list(rows_of(plan.out)) == [(name, True, "identical") for name in SCENARIOS if name in NAMES]
    assert sum("held" in line for line in told.lines) == len(NAMES)


def test_what_is_run_is_fetched_before_the_first_stage(broken: set[str], plan: Plan, fetched: list[str]) -> None:
    """On a fresh machine, a Java writer fetched its own jars for minutes: no record of it was there to be copied."""
    seen: list[list[str]] = []

    class Looking(Told):
        def line(self, text: str) -> None:
            seen.append([*fetched])

    run(replace(plan, only="^(worker-kill|nemeses-to-3.9)$"), Looking())
    assert seen[0] == fetched == ["3.9.2", "4.3.0", "kafka-tools"]


@pytest.mark.parametrize(("together", "numbers"), [(2, [2, 1]), (1, [1, 1, 1])])
def test_a_full_run_audits_some_scenarios_together(
    broken: set[str], plan: Plan, monkeypatch: pytest.MonkeyPatch, together: int, numbers: list[int]
) -> None:
    audited: list[int] = []

    def audit(pair: Any, topics: list[str], **_: Any) -> tuple[str, str]:
        audited.append(len(topics))
        return audits.IDENTICAL, ""

    monkeypatch.setattr(audits, "audit", audit)
    monkeypatch.setattr("chaos.suite.run._AUDITED_TOGETHER", together)
    monkeypatch.setattr("chaos.suite.run._Suite._keep_logs", lambda *_: None)
    rows = run(replace(plan, quick=False, repeat=1), Told())
    assert audited == numbers
    assert [row.audit for row in rows] == ["identical"] * len(NAMES)


def test_what_could_not_be_audited_did_not_hold(broken: set[str], plan: Plan) -> None:
    """Clusters that are given up take with them what was copied before: no silent "not run"."""
    broken.add(NAMES[1])
    run(plan, Told())
    held = {scenario: (held, audit) for scenario, held, audit in rows_of(plan.out)}
    assert held == {NAMES[0]: (False, "not run"), NAMES[1]: (False, "not run"), NAMES[2]: (True, "identical")}
    problems = {row.scenario: row.problems for row in results.load(plan.out / "alone.json")}
    (problem,) = problems[NAMES[0]]
    assert problem.startswith("not audited, its clusters had to be given up: the brokers are gone")


def test_a_stage_that_did_not_strike_is_played_again(broken: set[str], misses: dict[str, int], plan: Plan) -> None:
    misses[NAMES[0]] = TRIES - 1
    rows = {row.scenario: row for row in run(plan, Told())}
    assert all(row.held for row in rows.values())
    assert [(rows[name].repetitions, rows[name].tries) for name in NAMES[:2]] == [(1, TRIES), (1, 1)]
    text = (plan.out / "failures.md").read_text()
    assert f"| 1 of {TRIES} |" in text
    assert "; missed tries lacked: 4 x worker killed was seen 0 times\n" in text


def test_a_fault_that_never_strikes_did_not_hold(broken: set[str], misses: dict[str, int], plan: Plan) -> None:
    misses[NAMES[0]] = TRIES
    rows = {row.scenario: row for row in run(plan, Told())}
    assert {name: rows[name].held for name in NAMES} == {NAMES[0]: False, NAMES[1]: True, NAMES[2]: True}
    assert rows[NAMES[0]].problems == [f"the fault did not strike in {TRIES} tries: worker killed was seen 0 times"]


@pytest.mark.parametrize("problems", [["a partition halted"], []])
def test_the_brokers_logs_of_a_problem_are_kept(
    broken: set[str], plan: Plan, monkeypatch: pytest.MonkeyPatch, problems: list[str]
) -> None:
    def play(self: FakeStage, *_: Any, **__: Any) -> Outcome:
        self.outcome.problems = problems
        return self.outcome

    monkeypatch.setattr(FakeStage, "play", play)
    run(plan, Told())
    kept = plan.out / "chaos" / NAMES[0] / "source-2.log"
    assert kept.exists() is bool(problems)


def test_a_try_that_did_not_strike_shows_nothing(broken: set[str], misses: dict[str, int], plan: Plan) -> None:
    misses[NAMES[0]] = 2
    rows = {row.scenario: row for row in run(plan, Told())}
    assert (rows[NAMES[0]].tries, rows[NAMES[0]].topics, rows[NAMES[0]].audited) == (3, 2, 1)
