"""Texts for people."""

import pytest

from mirror.service.texts import aligned, duration_text, many, some


def test_columns() -> None:
    assert aligned([("a", "bb", ""), ("ccc", "d", "e")]) == ["a    bb", "ccc  d   e"]


def test_enumerations() -> None:
    assert some(["a", "b"]) == "a, b"
    assert some([str(number) for number in range(12)]).endswith("8, 9 and 2 more")
    assert some(["a", "b", "c"], 2, between="; ") == "a; b and 1 more"
    assert [many(count, "group") for count in (0, 1, 1_000)] == ["0 groups", "1 group", "1,000 groups"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.25, "0.2 s"),
        (9.96, "10.0 s"),
        (10, "10 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3_600, "1 h"),
        (3_661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (86_400 * 400, "400 d"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
