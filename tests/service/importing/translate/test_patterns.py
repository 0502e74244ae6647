"""Expressions of Java in our notation: what is translated matches the same names, and the rest is refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from mirror.service.importing.translate.patterns import Entries, Untranslatable, entries, split, translated
from mirror.service.selection import is_topic_name, topic_pattern
from tests.service.importing import java

NAMES = [
    "orders", "orders.eu", "orders-eu", "Orders", "payments", "payments.v1", "payments-v1", "a+b", "aab", "ab", "a",
    "b1", "x.internal", "x-internal", "mm2-offsets.a.internal", "__consumer_offsets", "heartbeats", "a.heartbeats",
    "abcabc", "q", "z9", "topic_1", "topic-12", "eu.orders", "us.orders", "UPPER", "123", "a.b.c", "-", "_", "aa",
    "aaa",
]  # fmt: skip
TRANSLATED = [
    ".*", "orders.*", r".*[\-\.]internal", r".*\.replica", "__.*", r"mm2.*\.internal", "(eu|us)[.]orders",
    "orders|payments", r"\Qa+b\E", r"\Qorders.\E.*", r"\Qa+b", r"[\w-]+\d", r"\p{Lower}+", r"[\p{Upper}_]+",
    r"\P{Alpha}+", r"\p{Alnum}*", r"\p{L}+", r"\pL+", r"(?<x>abc)\k<x>", r"(abc)\1", "(?i)ORDERS", "(?i:orders)",
    "(?!orders).*", "(?=a).*", ".*(?<!eu)", "(?>a+)b?", "a++b", "a*+", "a{2}", "a{1,2}", r"a{2,}", "[^a]+",
    "[a-c]+", r"\w+\z", "^orders$", r"(?:eu|us)\.orders", r"[\Q+.\Ea]+b", "topic[_-][0-9]+", r"\S+", r"[\d]+",
    r"\.", "-",
]  # fmt: skip
REFUSED = [
    "[a-z&&[^q]]+", "[a[bc]]+", r"\h+", r"\R", r"\v", r"a(?i)b", "(?u)a", "(?x) a", r"\p{InGreek}+",
    r"[\P{Alpha}]+", "a{", "a{x}", r"\Zx\G", "(a", "a)", "*a", "[a", "[]", "a\\", r"\cA", r"\0101", "(?<a-b>c)",
    "a{1,2", r"\x{41}", r"[\b]",
]  # fmt: skip


@pytest.fixture(scope="module")
def classes() -> Iterator[Any]:
    """A JVM."""
    with java.running() as found:
        yield found


@pytest.mark.parametrize("entry", TRANSLATED)
def test_it_matches_the_same_names(classes: Any, entry: str) -> None:
    pattern = classes.java.util.regex.Pattern.compile(entry)
    theirs = [name for name in NAMES if pattern.matcher(name).matches()]
    assert [name for name in NAMES if topic_pattern(translated(entry)).fullmatch(name)] == theirs


def test_names_have_been_told_apart() -> None:
    """Each name is matched by one of them, apart from those that match all."""
    told = [entry for entry in TRANSLATED if not topic_pattern(translated(entry)).fullmatch("__consumer_offsets")]
    assert len(told) > 30


@pytest.mark.parametrize("entry", REFUSED)
def test_what_has_no_equal_is_refused(entry: str) -> None:
    with pytest.raises(Untranslatable):
        translated(entry)


def test_a_name_is_a_name() -> None:
    assert is_topic_name(translated("payments.v1"))
    found = entries("payments.v1, orders")
    assert found.entries == ("payments.v1", "orders")
    assert "a dot is a dot" in found.notes[0]


def test_lists_are_split_as_kafka_does() -> None:
    assert split(" a ,b,,  c\t, ") == ["a", "b", "c"]
    assert split("") == []


def test_a_comma_inside_an_expression() -> None:
    """MirrorMaker 2 splits there, and joins by |."""
    assert entries("(eu,us)[.].*").entries == ("(eu|us)[.].*",)
    assert entries("a,a").entries == ("a",)


def test_what_failed_is_named_by_its_number() -> None:
    assert entries("orders, [a&&b], eu.*") == Entries(
        ("orders", "eu.*"),
        (),
        ("entry 2 of 3: an intersection of classes of characters, or one inside another",),
    )
