"""The README's figures are those of the last complete run."""

import re

import pytest

from bench.plan import ROOT
from bench.report import readme, results

README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN = ROOT / "bench" / "out" / "compare.json"


def test_the_figures_are_those_of_the_run() -> None:
    found = results.load(RUN)
    assert (found.kind, found.complete) == ("full", True)
    assert readme.written(README, found) == README, "python -m bench.report.readme"


def test_each_block_is_there_once() -> None:
    assert sorted(re.findall(r"<!-- bench: ([\w-]+) -->", README)) == sorted(readme.BLOCKS)


def test_a_figure_that_somebody_typed() -> None:
    """It is written over; a block of another name is an error."""
    found = results.load(RUN)
    text = "<!-- bench: latency -->\n| consumer |\n| mine |\n<!-- end of bench -->\nrest"
    assert "mine" not in readme.written(text, found)
    assert readme.written(text, found).endswith("<!-- end of bench -->\nrest")
    with pytest.raises(KeyError):
        readme.written(text.replace("latency", "other"), found)
