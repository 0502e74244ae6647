"""The rows that are kept, continued and published: of which commit, and when, without any clusters."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.errors import ChaosError
from chaos.scenario import SCENARIOS
from chaos.suite import audits, results
from chaos.suite.plan import PUBLISHED, Plan
from chaos.suite.run import run
from tests.chaos.suite.fakes import NAMES, Told


def test_the_code_changes_while_it_runs(broken: set[str], plan: Plan, commit: list[str]) -> None:
    """Later mirrors are of another commit: the rows say so."""

    class Changing(Told):
        def line(self, text: str) -> None:
            commit.append("def5678")

    run(plan, Changing())
    assert {row.commit for row in results.load(plan.out / "alone.json")} == {"abc1234 to def5678"}


def test_a_change_that_is_taken_back_stays_in_the_rows(broken: set[str], plan: Plan, commit: list[str]) -> None:
    """The first stage is played with changed files. Before its row is told again, they are as before."""

    class Changing(Told):
        def line(self, text: str) -> None:
            commit.append("abc1234" if text.startswith("audit") else "abc1234+changes")

    run(plan, Changing())
    assert {row.commit for row in results.load(plan.out / "alone.json")} == {"abc1234 to abc1234+changes"}


@pytest.mark.parametrize(
    ("now", "remedy"),
    [
        ("abc1234+changes", "take the changes back or commit them elsewhere (git stash), so that all is as at abc1234"),
        ("def5678", "check out abc1234, and CHAOS_CONTINUE=1 goes on; or leave it out to begin a complete run anew"),
        ("unknown", "see why git fails here"),
    ],
)
def test_a_run_of_other_code_is_not_continued(
    broken: set[str], plan: Plan, commit: list[str], now: str, remedy: str
) -> None:
    """It is said what would have to be done for that."""
    whole = replace(plan, only="")
    run(whole, Told())
    commit.append(now)
    with pytest.raises(ChaosError, match="commit") as error:
        run(replace(whole, continues=True), Told())
    assert remedy in str(error.value)


def test_what_was_played_with_other_files_is_played_once_more(broken: set[str], plan: Plan, commit: list[str]) -> None:
    """
    1. During a complete run, a file is changed, and taken back: from then on, its rows are of both.
    2. It goes on: what was played before that stays, all else is played once more, and all rows are of one commit.
    3. One that did not hold with the changed file is not left out: only another complete run may do that.
    4. Mutations: the run has to be begun anew; or what did not hold is played until it does.
    """
    whole, path = replace(plan, only=""), plan.out / "chaos.json"
    run(whole, Told())
    rows = results.load(path)
    for row in rows[3:]:
        row.commit = "abc1234 to abc1234+changes"
    results.save(rows, path)
    told = Told()
    run(replace(whole, continues=True), told)
    assert sum("held;" in line for line in told.lines) == len(SCENARIOS) - 3
    assert {row.commit for row in results.load(path)} == {"abc1234"}
    assert len({row.run for row in results.load(path)}) == 1
    rows = results.load(path)
    rows[5].commit, rows[5].problems = "abc1234 to abc1234+changes", ["a partition halted"]
    results.save(rows, path)
    with pytest.raises(ChaosError, match=rf"{rows[5].scenario} did not hold at abc1234 to abc1234\+changes"):
        run(replace(whole, continues=True), Told())


def test_what_is_published(
    broken: set[str], plan: Plan, commit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. A scenario by itself, where no complete run is known: the report that there is stays as it is.
    2. A complete run: at its end it is published, and not before.
    3. The same scenario: it has a row beside that run's.
    """
    monkeypatch.chdir(tmp_path)
    published, rows = tmp_path / "docs/results/failures.md", tmp_path / "chaos/out/chaos.json"
    published.parent.mkdir(parents=True)
    published.write_text("the last complete run")
    one = replace(plan, only="^worker-kill$", out=PUBLISHED, public=True)
    whole = replace(one, only="")
    run(one, Told())
    assert published.read_text() == "the last complete run", "not even one that holds"
    assert "Played by itself" in (tmp_path / "build/failures.md").read_text()

    class Watching(Told):
        def line(self, text: str) -> None:
            super().line(published.read_text())

    told = Watching()
    run(whole, told)
    assert set(told.lines[: len(SCENARIOS)]) == {"the last complete run"}
    assert f"**{len(SCENARIOS)} of {len(SCENARIOS)} scenarios held**" in published.read_text()
    assert len(results.load(rows)) == len(SCENARIOS)
    run(one, Told())
    assert [row.again for row in results.load(rows)] == [False] * len(SCENARIOS) + [True]


def test_a_run_that_ends_before_its_last_audit_is_not_published(
    broken: set[str], plan: Plan, commit: list[str], published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. A complete run whose last audit fails: every scenario has its row, and what is published stays as it was.
    2. It goes on: what was not audited is played once more. Now it is published.
    3. Nothing is left to go on with.
    """
    whole = replace(plan, only="", out=PUBLISHED, public=True)
    asked = list[object]()

    def audit(*_: object, **__: object) -> tuple[str, str]:
        asked.append(None)
        return audits.IDENTICAL, ""

    monkeypatch.setattr(audits, "audit", audit)
    run(replace(whole, out=Path("elsewhere"), public=False), Told())
    last = len(asked)
    asked.clear()

    def audit_but_the_last(*_: object, **__: object) -> tuple[str, str]:
        if len(asked) == last - 1:
            raise OSError("Spark is gone")
        return audit()

    monkeypatch.setattr(audits, "audit", audit_but_the_last)
    with pytest.raises(OSError, match="Spark is gone"):
        run(whole, Told())
    rows = results.load(tmp_path / "build/chaos.json")
    assert {row.scenario for row in rows} == set(SCENARIOS)
    unaudited = {row.scenario for row in rows if not row.held}
    assert unaudited == {row.scenario for row in rows if row.audit == audits.NOT_RUN} != set()
    assert published.read_text() == "the last complete run"
    monkeypatch.setattr(audits, "audit", audit)
    told = Told()
    run(replace(whole, continues=True), told)
    assert {line.partition(":")[0] for line in told.lines if "held;" in line} == unaudited
    assert f"**{len(SCENARIOS)} of {len(SCENARIOS)} scenarios held**" in published.read_text()
    with pytest.raises(ChaosError, match="has come to its end"):
        run(replace(whole, continues=True), Told())


def test_clusters_that_are_given_up_in_a_complete_run(
    broken: set[str], plan: Plan, commit: list[str], published: Path
) -> None:
    """What was copied on them before is played once more when the run goes on; until then, nothing is published."""
    whole = replace(plan, only="", out=PUBLISHED, public=True)
    broken.add(NAMES[1])
    with pytest.raises(ChaosError, match=rf"not audited, since their clusters had to be given up: {NAMES[0]}"):
        run(whole, Told())
    assert published.read_text() == "the last complete run"
    broken.clear()
    told = Told()
    rows = {row.scenario: row for row in run(replace(whole, continues=True), told)}
    assert {line.partition(":")[0] for line in told.lines if "held;" in line} >= {NAMES[0]}
    assert [name for name, row in rows.items() if not row.held] == [NAMES[1]], "its own failure stays"
    assert f"**{len(SCENARIOS) - 1} of {len(SCENARIOS)} scenarios held**" in published.read_text()


def test_git_that_fails_for_a_moment(broken: set[str], plan: Plan, commit: list[str]) -> None:
    """It says nothing about the files, and the run can be continued."""

    class Hindered(Told):
        def line(self, text: str) -> None:
            commit.append("unknown" if commit[-1] != "unknown" else "abc1234")

    run(plan, Hindered())
    assert {row.commit for row in results.load(plan.out / "alone.json")} == {"abc1234"}


def test_what_is_played_between_an_interruption_and_its_end(
    broken: set[str], plan: Plan, commit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. A complete run is published. Another one, of the same commit, is interrupted.
    2. A scenario is played by itself: it stands beside the published run, and takes nothing of the other.
    3. The other goes on, with what is due; it is published with that scenario beside it.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs/results").mkdir(parents=True)
    one = replace(plan, only="^worker-kill$", out=PUBLISHED, public=True)
    whole = replace(one, only="")
    run(whole, Told())
    rows = tmp_path / "chaos/out/chaos.json"
    results.save([replace(row, run="2026-01-01 00:00:00") for row in results.load(rows)], rows)

    class Stopping(Told):
        def line(self, text: str) -> None:
            super().line(text)
            if sum("held;" in line for line in self.lines) > 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(whole, Stopping())
    half = tmp_path / "build/chaos.json"  # runs are told apart by the second in which they begin
    results.save([replace(row, run="2026-01-02 00:00:00") for row in results.load(half)], half)
    kept = {row.scenario for row in results.load(half)}
    assert 0 < len(kept) < len(SCENARIOS)
    run(one, Told())
    assert {row.scenario for row in results.load(half)} == kept
    assert [(row.scenario, row.run[:4]) for row in results.load(rows) if row.again] == [("worker-kill", "2026")]
    told = Told()
    run(replace(whole, continues=True), told)
    assert sum("held;" in line for line in told.lines) >= len(SCENARIOS) - len(kept) > 0
    found = results.load(rows)
    assert [row.scenario for row in found] == [*SCENARIOS, "worker-kill"]
    assert {row.run for row in found if not row.again} == {"2026-01-02 00:00:00"}


def test_what_fails_before_its_first_try_is_published(
    broken: set[str], plan: Plan, commit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played by itself, where the complete run's rows are not at hand."""
    monkeypatch.chdir(tmp_path)
    published = tmp_path / "docs/results/failures.md"
    published.parent.mkdir(parents=True)
    one = replace(plan, only="^worker-kill$", out=PUBLISHED, public=True)
    run(replace(one, only=""), Told())
    (tmp_path / "chaos/out/chaos.json").unlink()
    broken.add("worker-kill")
    run(one, Told())
    (row,) = results.load(tmp_path / "chaos/out/chaos.json")
    assert (row.tries, row.held) == (0, False)
    text = published.read_text()
    assert text.count("| `worker-kill` |") == 2
    assert "the brokers are gone" in text


def test_a_row_beside_a_complete_run_of_another_machine(
    broken: set[str], plan: Plan, commit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. A complete run's report is there, and its rows are not.
    2. A scenario by itself, twice: each has a row in that report, with commit and evidence; the rest stays as it is.
    3. Another complete run takes the place of it all.
    """
    monkeypatch.chdir(tmp_path)
    published, rows = tmp_path / "docs/results/failures.md", tmp_path / "chaos/out/chaos.json"
    published.parent.mkdir(parents=True)
    one = replace(plan, only="^worker-kill$", out=PUBLISHED, public=True)
    whole = replace(one, only="")
    run(whole, Told())
    before = published.read_text()
    rows.unlink()
    for at in ("abc1234", "def5678"):
        commit.append(at)
        run(one, Told())
        if at == "abc1234":  # a day ago: runs are told apart by the second in which they begin
            results.save([replace(row, run="2026-01-01 00:00:00") for row in results.load(rows)], rows)
    section = re.search(r"^## Played by itself\n.*?(?=^## )", published.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    assert published.read_text().replace(section[0], "") == before
    told = [line for line in section[0].splitlines() if line.startswith("| `worker-kill` ")]
    assert ["at abc1234" in line for line in told] == [True, False]
    assert ["at def5678" in line for line in told] == [False, True]
    assert "### What was run" in section[0]
    assert [row.again for row in results.load(rows)] == [True, True]
    run(whole, Told())
    assert "Played by itself" not in published.read_text()


def test_a_complete_run_that_was_interrupted_goes_on(broken: set[str], plan: Plan, commit: list[str]) -> None:
    """
    1. A complete run; its rows of three scenarios are gone, and one has not been audited.
    2. It goes on: these four are played, and all of it is one run. Begun anew, all are.
    3. What is played by itself stands beside it.
    """
    whole = replace(plan, only="")
    path = plan.out / "chaos.json"
    assert len(run(whole, Told())) == len(SCENARIOS)
    rows = [row for row in results.load(path) if row.scenario not in NAMES]
    rows[0].audit = "not run"
    results.save(rows, path)
    told = Told()
    assert len(run(replace(whole, continues=True), told)) == len(SCENARIOS)
    assert sorted(line.partition(":")[0] for line in told.lines if "held;" in line) == sorted([
        *NAMES, rows[0].scenario
    ])  # fmt: skip
    assert [row.scenario for row in results.load(path)] == list(SCENARIOS)
    assert len({(row.run, row.commit) for row in results.load(path)}) == 1
    run(plan, Told())
    assert [row.scenario for row in results.load(path)] == list(SCENARIOS)
    assert {row.scenario for row in results.load(plan.out / "alone.json")} == set(NAMES)
    text = (plan.out / "failures.md").read_text()
    assert f"**{len(SCENARIOS)} of {len(SCENARIOS)} scenarios held**" in text
    assert "Played by itself" in text
    run(whole, Told())
    assert [(row.scenario, row.again) for row in results.load(path)] == [(name, False) for name in SCENARIOS]
