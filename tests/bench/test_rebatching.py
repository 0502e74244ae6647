"""``python -m bench.rebatching``, with few batches: the table of `mode` in docs/results/COSTS.md comes from it."""

import re

import pytest

from bench import rebatching

pytestmark = pytest.mark.broker


def test_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Real copies in both modes, of which every batch is there in the end."""
    monkeypatch.setattr(rebatching, "BATCHES", 40_000)  # so many that a busy machine sees them on their way
    monkeypatch.setattr(rebatching, "SIZES", (1_000,))
    monkeypatch.setattr(rebatching, "PARTITIONS", (2,))
    assert rebatching.main(["1"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("| batch, bytes | partitions |")
    assert [re.split(r" *\| *", row)[1:3] for row in rows] == [["1,000", "2"]]
    for row in rows:
        assert all(float(number.replace(",", "")) > 0 for number in re.findall(r"[\d.,]+\d", row))
