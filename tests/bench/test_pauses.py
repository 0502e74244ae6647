"""The pauses of partitions: what counts, and the line that says it."""

from bench.pauses import longest_gaps, row


def test_longest_gaps() -> None:
    """Also that before the first record of the window, and that behind the last one. Records outside do not count."""
    seen = [(0, 9.0), (1, 10.5), (0, 11.0), (1, 11.0), (0, 14.0), (1, 19.0), (0, 15.0), (0, 21.0)]
    assert longest_gaps(seen, 10.0, 20.0) == {0: 5.0, 1: 8.0}
    assert longest_gaps([(2, 13.0)], 10.0, 14.0) == {2: 3.0}
    assert longest_gaps([(2, 9.0)], 10.0, 14.0) == {2: 4.0}


def test_row() -> None:
    assert row("x", {0: 0.5, 1: 1.0, 2: 3.25}) == "| x | 1.0 | 3.2 | 1 of 3 |"
