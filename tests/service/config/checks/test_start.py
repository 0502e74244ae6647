"""The values of ``start.from``, and the group that goes with one of them."""

import pytest
from pydantic_core import PydanticCustomError

from mirror.service.config.checks.start import check_start, start_at_ms
from tests.service.config.loading import Load


@pytest.mark.parametrize("value", ["earliest", "latest", "committed"])
def test_words(value: str) -> None:
    assert check_start(value) == value
    assert start_at_ms(value) == -1


@pytest.mark.parametrize(
    ("value", "at_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-30T00:00:00Z", 1_795_996_800_000),
        ("2026-11-30T01:00:00.250+01:00", 1_795_996_800_250),
    ],
)
def test_times(value: str, at_ms: int) -> None:
    assert check_start(value) == value
    assert start_at_ms(value) == at_ms


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("newest", "is neither earliest, latest or committed nor a time; write one of them, or a time such as"),
        ("1795996800000", "is neither earliest"),
        ("2026-11-30T00:00:00", "has no time zone; write a time with one"),
        ("2026-11-30", "has no time zone"),
        ("1969-12-31T23:59:59Z", "is before 1970"),
    ],
)
def test_mistakes(value: str, told: str) -> None:
    with pytest.raises(PydanticCustomError, match=told):
        check_start(value)


FLOW = """
clusters: {a: {bootstrap.servers: "h:1"}, b: {bootstrap.servers: "h:2"}}
flows:
  "a->b":
    topics: [orders]
"""


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("    start.from: committed\n", "start.group: is missing, and start.from: committed needs it"),
        ("    start.group: old\n", "is set, and start.from: earliest does not use it"),
        (
            "    start.from: committed\n    start.group: mine\n    group.id: mine\n",
            "is the flow's own group (group.id), which commits what this flow has copied",
        ),
    ],
)
def test_the_group(lines: str, told: str, loading: Load) -> None:
    (message,) = loading.errors(FLOW + lines)
    assert told in message


def test_dates_need_no_quotes(loading: Load) -> None:
    settings = loading(FLOW + "    start.from: 2026-11-30T00:00:00Z\n").flows["a->b"]
    assert start_at_ms(settings.start_from) == 1_795_996_800_000
