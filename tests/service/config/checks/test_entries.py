"""Entries for topics and groups: nothing that works is refused, and what is refused matches no topic."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from mirror.service.config.checks.entries import check_group_entry, check_included, check_topic_entry, leaves_nothing
from mirror.service.selection import is_internal, topic_pattern

NAMES = [
    *("".join(each) for length in (1, 2, 3) for each in product("a0_.-", repeat=length)),
    *(f"mirror-intern{rest}" for rest in ("", "a", "aa", "aal", "l", "xl")),
]
PIECES = [
    *("a", "b", "0", "_", "__", "-", ".", "\\.", "\\d", "[", "]", "[^a]", "[ /]", "{", "}", "{0}", "{,2}", "{1,2}"),
    *("?", "*", "+", "^", "$", "/", " ", ",", ":", "(", ")", "|", ".*", "mirror-internal"),
]
ENTRIES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
BEGINNINGS = st.sampled_from(["", "^", "__", "^__", "_", "\\_\\_", "mirror-internal", "mirror\\-internal"])


def problem_of(entry: str) -> str:
    try:
        check_included(entry)
    except PydanticCustomError as error:
        return str((error.context or {})["problem"])
    return ""


@given(ENTRIES)
def test_what_matches_no_topic_matches_no_topic(entry: str) -> None:
    if "matches none" in problem_of(entry):
        assert not any(map(topic_pattern(entry).fullmatch, NAMES))


@given(BEGINNINGS, ENTRIES)
def test_what_is_for_internal_topics_matches_no_other(beginning: str, rest: str) -> None:
    entry = beginning + rest
    if "internal topic" in problem_of(entry):
        try:
            pattern = topic_pattern(entry)
        except ValueError:
            return
        assert not any(pattern.fullmatch(name) for name in NAMES if not is_internal(name))


WIDE = st.builds(
    "{}{}{}".format, st.sampled_from(["", "^"]), st.text("ab", max_size=2), st.sampled_from([".*", ".+", ""])
)


@given(
    st.lists(WIDE.filter(bool), min_size=1, max_size=2),
    st.lists(WIDE.filter(bool), max_size=3),
    st.text("ab", min_size=1, max_size=4),
)
def test_what_leaves_nothing_leaves_nothing(entries: list[str], exclude: list[str], name: str) -> None:
    """A name that an entry matches is matched by an excluded one."""
    if leaves_nothing(entries, exclude) and any(topic_pattern(entry).fullmatch(name) for entry in entries):
        assert any(topic_pattern(entry).fullmatch(name) for entry in exclude)


@pytest.mark.parametrize(
    ("entries", "exclude", "nothing"),
    [
        (["a"], ["a"], True),
        (["a", "b"], ["a"], False),
        (["a"], [".*"], True),
        (["a|b"], [".+"], True),
        (["orders-.*"], ["orders.*"], True),
        (["orders.*"], ["orders-.*"], False),
        (["orders.*"], ["orders.+"], False),
        (["orders.+"], ["orders.*"], True),
        (["orders\\..*"], ["orders.*"], True),
        (["(a|b)"], ["a", "b"], False),  # not found: that shows itself when the topics are there
        (["a"], [], False),
    ],
)
def test_leaves_nothing(entries: list[str], exclude: list[str], nothing: bool) -> None:
    assert leaves_nothing(entries, exclude) is nothing


@pytest.mark.parametrize(
    "entry",
    ["orders.*", "orders\\..*", "orders?", "(orders|payments)-.*", "^orders$", "[a-z]+", "x{1,2}", "order[s]*",
     "(a|b),c", "a/?", "a/*", "a {0}", "a {,2}", "{{0}a", "}?a", "]*a",
          "orders-v[0-9]*", ".*-dlq", "\\w+", "_.*", "mirror-.*", "(?i)orders", "-a", "a.*.*"],
)  # fmt: skip
def test_expressions_that_work_are_taken(entry: str) -> None:
    assert problem_of(entry) == ""


def test_groups_may_have_any_characters() -> None:
    for entry in ("billing app", "a/b", "a:b", "billing-.*"):
        assert check_group_entry(entry) == entry
    with pytest.raises(PydanticCustomError, match="is not a valid regular expression"):
        check_group_entry("(a")


@pytest.mark.parametrize("entry", ["orders*", "*orders", "a-*", "a\\.*", "?", "*"])
def test_globs(entry: str) -> None:
    for check in (check_topic_entry, check_group_entry):
        with pytest.raises(PydanticCustomError, match=re.escape("is a glob")):
            check(entry)
