"""Plan, rows and report: what was run is what is written."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import chaos.scenarios  # noqa: F401 - registers them
from chaos.errors import ChaosError
from chaos.scenario import SCENARIOS
from chaos.suite import audits, report, results
from chaos.suite.plan import PUBLISHED, Plan, from_environment
from chaos.suite.results import Row


def row(name: str, **changes: object) -> Row:
    usual: dict[str, object] = {
        "scenario": name, "group": "Processes", "does": "kill -9", "version": "4.3.0", "brokers": 3,
        "command": "make chaos", "at": "2026-01-02 03:04", "repetitions": 3, "tries": 4, "wanted": 3, "records": 100,
        "evidence": ["worker killed (its supervisor)"], "audited": 1, "topics": 1,
        "recover_s": [1.0, 9.0, 2.0], "audit": "identical",
    }  # fmt: skip
    return Row(**(usual | changes))  # type: ignore[arg-type]


def test_plan_from_the_environment() -> None:
    assert replace(from_environment({}), seed=0) == Plan(public=True)
    assert from_environment({"CHAOS_SEED": "7"}).command == "CHAOS_SEED=7 make chaos"
    plan = from_environment({"CHAOS_QUICK": "1", "CHAOS_ONLY": "kill", "CHAOS_WORKERS": "2", "CHAOS_OUT": "/x"})
    assert plan.quick
    assert plan.command == "CHAOS_QUICK=1 CHAOS_ONLY='kill' CHAOS_WORKERS=2 make chaos"
    assert plan.out == Path("/x")
    assert plan.tracks == 2
    assert from_environment({"CHAOS_QUICK": "1"}).out == Path("build/chaos-aside")
    assert from_environment({"CHAOS_ONLY": "kill"}).out == PUBLISHED
    for narrow in ({"CHAOS_REPEAT": "1"}, {"CHAOS_WRITERS": "java"}, {"CHAOS_WORKERS": "2"}, {"CHAOS_AUDIT": "0"}):
        assert from_environment(narrow).out == Path("build/chaos-aside")
    alone = from_environment({"CHAOS_QUICK": "1", "CHAOS_TRACKS": "1"})
    assert alone.command == "CHAOS_QUICK=1 CHAOS_TRACKS=1 make chaos"
    assert from_environment({"CHAOS_TRACKS": "1"}).command == "make chaos"
    assert from_environment({"CHAOS_QUICK": "0"}).out == PUBLISHED
    for narrow in ({"CHAOS_QUICK": "1"}, {"CHAOS_REPEAT": "1"}, {"CHAOS_AUDIT": "0"}, {"CHAOS_WRITERS": "java"}):
        assert not from_environment(narrow | {"CHAOS_OUT": "build"}).public
    assert from_environment({"CHAOS_OUT": "build", "CHAOS_SEED": "7", "CHAOS_PACE": "0.4"}).public
    assert not from_environment({"CHAOS_OUT": "elsewhere"}).public
    slower = from_environment({"CHAOS_PACE": "0.4"})
    assert (slower.command, slower.out) == ("CHAOS_PACE=0.4 make chaos", PUBLISHED)


@pytest.mark.parametrize(
    "environment",
    [
        {"CHAOS_ONLY": "("},
        {"CHAOS_REPEAT": "often"},
        {"CHAOS_ONLY": "kill", "CHAOS_CONTINUE": "1"},
        *({"CHAOS_PACE": pace} for pace in ("0", "-1", "1.5", "slow", "nan")),
    ],
)
def test_an_environment_that_makes_no_sense(environment: dict[str, str]) -> None:
    with pytest.raises(ChaosError):
        from_environment(environment)


def test_selection_by_name_and_group() -> None:
    assert Plan(only="^worker-kill$").select(SCENARIOS)[0].name == "worker-kill"
    assert all(one.group == "Processes" for one in Plan(only="^Processes$").select(SCENARIOS))
    with pytest.raises(ChaosError, match="worker-kill"):
        Plan(only="nothing like it").select(SCENARIOS)


def test_every_scenario_is_told_in_words_and_counts() -> None:
    for name, one in SCENARIOS.items():
        assert one.does, name
        assert one.full >= one.quick >= 1
        assert one.per_stage >= 1


def test_what_is_played_again_replaces_nothing(tmp_path: Path) -> None:
    """1. Rows of one run are told anew. 2. One that is played by itself stands beside them, each time."""
    path = tmp_path / "sub" / "chaos.json"
    assert results.load(path) == []
    results.save([row("a", records=1), row("b", records=2)], path)
    merged = results.merge(results.load(path), [row("b", records=20)], ["b", "a"])
    assert [(one.scenario, one.records) for one in merged] == [("b", 20), ("a", 1)]
    for run in ("1", "2"):
        merged = results.merge(merged, [row("a", records=9, again=True, run=run)], ["b", "a"])
    assert [(one.scenario, one.records, one.again) for one in merged] == [
        ("b", 20, False), ("a", 1, False), ("a", 9, True), ("a", 9, True),
    ]  # fmt: skip


def test_a_run_goes_on_with_the_same_code_alone() -> None:
    """What was not audited is played once more, and what did not hold is not."""
    had = {"commit": "c0ffee", "command": "make chaos", "run": "now"}
    rows = [
        row("done", **had), row("due", audit="not run", **had), row("lost", audit="not run", problems=["lost"], **had),
        row("other", commit="c0ffee", run="later", again=True),
    ]  # fmt: skip
    of_another = row("of another", **had | {"commit": "decade"})
    kept = results.continued([*rows, of_another], command="make chaos", commit="c0ffee")
    assert [one.scenario for one in kept] == ["done", "lost"]
    for command, commit, says in (
        ("make chaos", "decade", "begun at commit c0ffee, and this is decade"),
        ("make chaos", "c0ffee+changes", "of commit c0ffee+changes, which does not say"),
        ("make chaos", "unknown", "of which commit these files are is not known"),
        ("CHAOS_SEED=1 make chaos", "c0ffee", "begun by `make chaos`, not by `CHAOS_SEED=1 make chaos`"),
    ):
        with pytest.raises(ChaosError, match=re.escape(says)):
            results.continued(rows, command=command, commit=commit)
    begun_changed = [row("done", **had | {"commit": "c0ffee+changes"})]
    with pytest.raises(ChaosError, match=re.escape("begun at commit c0ffee+changes, and")) as error:
        results.continued(begun_changed, command="make chaos", commit="c0ffee")
    assert error.value.remedy == "leave CHAOS_CONTINUE out to begin a complete run anew"
    with pytest.raises(ChaosError, match="no complete run"):
        results.continued(rows[-1:], command="make chaos", commit="c0ffee")


def test_what_was_not_audited_did_not_hold() -> None:
    """Unless the run has no audit, or there was nothing to audit."""
    assert [row("a", audit=one).held for one in (audits.IDENTICAL, audits.LEFT_OUT, audits.NOTHING)] == [True] * 3
    for one in (audits.NOT_RUN, audits.DIFFERENT, "failed"):
        assert not row("a", audit=one).held
        assert f"audit: {one}" in report.markdown([row("a", audit=one)])


def test_what_was_not_compared_is_not_told_as_nothing_lost() -> None:
    """1. All of it. 2. One of several stages. 3. None."""
    rows = [row("a", records=0, uncompared=1, problems=["x"]), row("b", uncompared=1, lost=2, problems=["x"]), row("c")]
    text = report.markdown(rows)
    assert "**2 stages failed before both sides were compared.**" in text
    assert "stages failed" not in report.markdown(rows[2:])
    told = {name: next(line for line in text.splitlines() if f"| `{name}`" in line) for name in "abc"}
    assert "| 0 | not compared | not compared | not compared |" in told["a"]
    assert "| 100 | 2, not all compared | 0, not all compared | 0, not all compared |" in told["b"]
    assert "| 100 | 0 | 0 | 0 |" in told["c"]


def test_the_report_says_what_code_was_run_and_what_is_missing() -> None:
    rows = [
        row("a", commit="c0ffee"), row("b", commit="c0ffee", problems=["lost"]),
        row("b", commit="decade", again=True, at="2026-01-03 03:04"),
    ]  # fmt: skip
    text = report.markdown(rows, ["a", "b"])
    assert "**1 of 2 scenarios held**, at commit `c0ffee`, over 6 strikes" in text
    assert "Not played yet" not in text
    alone = text[text.index("## Played by itself") : text.index("## What did not hold")]
    assert "kill -9 (at decade, 2026-01-03 03:04)" in alone
    assert "**Not played yet: c, d.**" in report.markdown(rows, ["a", "b", "c", "d"])
    assert "**No complete run**" in report.markdown(rows[2:], ["a", "b"])


def test_report_tells_what_held_and_what_did_not() -> None:
    text = report.markdown(
        [
            row("fine", halted={"source_truncated": 1}, prefixes=50, topics=3),
            row("lossy", lost=2, problems=["lost: t-0@5, t-0@6\nsecond line"]),
            row("short", repetitions=1, recover_s=[4.0], figures=["97 %", "101 %"]),
            row("unproved", audit="different"),
        ]
    )
    assert "**1 of 4 scenarios held**" in text
    fine, lossy, short = (next(line for line in text.splitlines() if f"| `{one}`" in line) for one in ("fine", "lossy", "short"))  # fmt: skip  # noqa: E501
    assert fine.endswith(
        "| 3 of 4 | 100 | 0 | 0 | 0 | 1 source_truncated (50) | 2.0 / 9.0 | identical, 1 of 3 topics | yes |"
    )
    assert "* `fine`: worker killed (its supervisor)\n" in text
    assert lossy.endswith("| **no** |")
    assert "| 4.0 |" in short
    failed = text[text.index("What did not hold") :]
    assert "`lossy`: lost: t-0@5, t-0@6\n" in failed
    assert "`short`: it struck 1 times of 3" in failed
    assert "`unproved`: audit: different" in failed
    assert "## Figures\n\n* `short`: 97 %; 101 %\n" in text
