"""The figures of README.md and docs/results/COSTS.md are those of the last complete run."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench import goals
from bench.measure import DEFINITION
from bench.plan import ROOT
from bench.report import documents, results
from bench.report.results import Cost
from tests.bench import samples

RUN = ROOT / "bench" / "out" / "compare.json"


@pytest.mark.parametrize("document", documents.DOCUMENTS, ids=lambda path: path.name)
def test_the_figures_are_those_of_the_run(document: Path) -> None:
    found, text = results.load(RUN), document.read_text(encoding="utf-8")
    assert (found.kind, found.complete) == ("full", True)
    assert documents.written(text, found) == text, "python -m bench.report.documents"


def test_each_block_is_there_once() -> None:
    """In one of the documents."""
    texts = [document.read_text(encoding="utf-8") for document in documents.DOCUMENTS]
    assert sorted(re.findall(r"<!-- bench: ([\w-]+) -->", "".join(texts))) == sorted(documents.BLOCKS)


def test_a_figure_that_somebody_typed() -> None:
    """It is written over; a block of another name is an error."""
    found = results.load(RUN)
    text = "<!-- bench: latency -->\n| consumer |\n| mine |\n<!-- end of bench -->\nrest"
    assert "mine" not in documents.written(text, found)
    assert documents.written(text, found).endswith("<!-- end of bench -->\nrest")
    with pytest.raises(KeyError):
        documents.written(text.replace("latency", "other"), found)


def test_what_is_left_out_of_the_bounds_is_told() -> None:
    """Beside the bounds, not only in another document: a figure without its supervisor keeps a bound more easily."""
    found = results.load(RUN)
    told = "\n".join(documents.BLOCKS["bounds"](replace(found, definition="the worker, without the supervisor")))
    assert "the worker without its supervisor" in told
    assert "99 % of the records that came" in told
    now = "\n".join(documents.BLOCKS["bounds"](replace(found, definition=DEFINITION)))
    assert "supervisor" not in now
    assert "records that came" not in now
    assert "nearby, without TLS" in now


@pytest.mark.parametrize(("runs", "told"), [((), True), ((1.0, 1.1), False)])
def test_what_was_not_measured_in_turn_is_told(runs: tuple[float, ...], told: bool) -> None:
    found = samples.results(only="none of them")
    found.costs = [
        Cost(case=case, what="", partitions=8, cpu_s_per_gb=1.0, runs_cpu_s_per_gb=runs)
        for case in ("exact-deep-2pc", "exact-deep-none")
    ]
    assert ("one measurement of each case" in "\n".join(documents.BLOCKS["bounds"](found))) is told


def test_the_definition_is_that_of_the_run(tmp_path: Path) -> None:
    found = replace(samples.results(only="none of them"), definition="another one")
    assert results.load(results.save(found, tmp_path)).definition == "another one"


def test_what_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bound that was not kept everywhere is a line; what was not measured is not kept, either."""
    kept = goals.Verdict(what="fast", workload="a", found=2.04, kept=True)
    slow, unknown = replace(kept, workload="b", found=1.0, kept=False), replace(kept, found=None, kept=False)
    small = replace(kept, what="small")

    def told(*verdicts: goals.Verdict) -> list[str]:
        monkeypatch.setattr(documents, "verdicts", lambda _: list(verdicts))
        return documents.BLOCKS["missed"](samples.results())

    assert told(kept, small) == ["All 2 bounds that the project has set itself were kept in that run."]
    first, _, *lines = told(kept, slow, small)
    assert first == "**Missed in that run:** 1 of the 2 bounds that the project has set itself."
    assert lines == ["* fast: kept in 1 of 2 workloads (1.0 to 2.0)."]
    assert told(unknown)[2:] == ["* fast: kept in 0 of 1 workload (not measured)."]
