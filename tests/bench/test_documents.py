"""The figures of README.md and docs/results/COSTS.md are those of the last complete run."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench import goals
from bench.plan import ROOT
from bench.report import documents, results
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
