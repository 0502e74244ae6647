"""The kinds of value, each by itself: what it reads and what it refuses, without repeating the value in a message."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from mirror.service.config import ClusterSettings, HostPort
from mirror.service.config.checks.entries import check_topic_entry
from mirror.service.config.kinds import (
    UNITS,
    Addresses,
    Choice,
    Count,
    Milliseconds,
    Quantity,
    Size,
    Switch,
    format_size,
    parse_size,
)
from mirror.service.selection import Selection, is_topic_name, topic_pattern

sizes = st.integers(min_value=0, max_value=10**18 - 1)


# Sizes, durations, counts.


@given(sizes)
def test_sizes_read_back_as_they_are_written(size: int) -> None:
    assert parse_size(format_size(size)) == size
    assert parse_size(str(size)) == size


@given(st.integers(min_value=0, max_value=10**9), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
def test_sizes_with_units(count: int, unit: str, gap: str) -> None:
    text = f"{count}{gap}{unit}"
    assert parse_size(text) == count * UNITS[unit]
    assert Size(minimum=0, maximum=10**19).read(f" {text} ") == count * UNITS[unit]


@given(st.text(max_size=12))
def test_other_text_is_no_size(text: str) -> None:
    digits = text.rstrip("BKMGi").rstrip(" ")
    assume(not (digits.isascii() and digits.isdecimal()))
    assert parse_size(text) is None


@pytest.mark.parametrize("text", ["4MB", "4mib", "4M", "4 M iB", "1.5MiB", "1_000", "٤", "0x10", "", "MiB", "9" * 19])
def test_what_looks_like_a_size_and_is_none(text: str) -> None:
    with pytest.raises(PydanticCustomError, match="must be a size in bytes; write 4194304, 4096KiB or 4MiB"):
        Size(minimum=0).read(text)


@given(sizes)
def test_a_size_is_shown_in_the_largest_unit_that_divides_it(size: int) -> None:
    text = format_size(size)
    larger = [factor for factor in UNITS.values() if factor > UNITS[text.lstrip("0123456789")]]
    assert size == 0 or not any(size % factor == 0 for factor in larger)


@given(st.integers(), st.integers(0, 1_000), st.integers(0, 1_000), st.none() | st.just(-1))
def test_ranges_hold(value: int, minimum: int, span: int, also: int | None) -> None:
    kind = Count(minimum=minimum, maximum=minimum + span, also=also)
    if minimum <= value <= minimum + span or value == also:
        assert kind.read(value) == value
    else:
        with pytest.raises(PydanticCustomError, match=f"must be from {minimum} to {minimum + span}"):
            kind.read(value)


@pytest.mark.parametrize("kind", [Count(minimum=-9), Milliseconds(minimum=-9), Size(minimum=-9)])
@pytest.mark.parametrize(("value", "number"), [(5, 5), ("5", 5), ("-1", -1), (" 7 ", 7)])
def test_numbers_may_be_text(kind: Quantity, value: object, number: int) -> None:
    assert kind.read(value) == number


@pytest.mark.parametrize("kind", [Count(minimum=0), Milliseconds(minimum=0), Size(minimum=0)])
@pytest.mark.parametrize("value", [True, 1.0, None, [], {}, "x", "1e3", b"1"])
def test_other_types_are_no_numbers(kind: Quantity, value: object) -> None:
    with pytest.raises(PydanticCustomError, match=f"must be {kind.what}; write {kind.example}"):
        kind.read(value)


# Switches and words.


@pytest.mark.parametrize(("value", "on"), [(True, True), (False, False), ("true", True), ("false", False)])
def test_switch(value: object, on: bool) -> None:
    assert Switch.read(value) is on


@pytest.mark.parametrize("value", [1, 0, "yes", "True", None, [], {}])
def test_no_switch(value: object) -> None:
    with pytest.raises(PydanticCustomError, match="must be true or false; write true or false"):
        Switch.read(value)


def test_choice() -> None:
    choice = Choice(("red", "green"), str.lower)
    assert choice.read("Green") == "green"
    assert Choice(("red",), empty=True).read("") == ""
    for value in ("", "grey", None, 1, ["red"]):
        with pytest.raises(PydanticCustomError, match="must be red or green; write red or green"):
            choice.read(value)


# Addresses.


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("h:1", [("h", 1)]),
        (" kafka-1.example:9092 , 10.0.0.1:65535", [("kafka-1.example", 9092), ("10.0.0.1", 65_535)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("[fe80::1%eth0]:9092", [("fe80::1%eth0", 9092)]),
        ("a:1,b:2,a:1", [("a", 1), ("b", 2)]),
        ("my_host:1", [("my_host", 1)]),
        ([HostPort("a", 1)], [("a", 1)]),
    ],
)
def test_addresses(value: object, addresses: list[tuple[str, int]]) -> None:
    found = Addresses.read(value)
    assert list(found) == addresses
    assert Addresses.read(",".join(map(str, found))) == found


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "names no broker"),
        (" , ", "names no broker"),
        ([], "names no broker"),
        (7, "must be addresses of brokers"),
        (None, "must be addresses of brokers"),
        ({"a": 1}, "must be addresses of brokers"),
        ("host", "is not host:port"),
        ("host:", "is not host:port"),
        (":9092", "is not host:port"),
        ("ho st:9092", "is not host:port"),
        ("-h:9092", "is not host:port"),
        ("::1:9092", "is not host:port"),
        ("[h]:9092", "is not host:port"),
        ("h:９", "is not host:port"),
        ("a:1,,b:2", "address 2 of 3 is not host:port"),
        (["a:1", 7], "address 2 of 2 is not host:port"),
        ("a:1,PLAINTEXT://b:2", "address 2 of 2 is a URL, not host:port"),
        ("h:0", "is an address with a port outside 1 to 65535"),
        ("h:65536", "is an address with a port outside 1 to 65535"),
    ],
)
def test_no_addresses(value: object, problem: str) -> None:
    with pytest.raises(PydanticCustomError, match=f"^{problem}; .*kafka-1:9092"):
        Addresses.read(value)


@given(st.text(max_size=20))
def test_any_text_is_addresses_or_refused(text: str) -> None:
    """Nothing else is ever raised, and what is read can be written and read again."""
    try:
        found = Addresses.read(text)
    except PydanticCustomError:
        return
    assert Addresses.read(",".join(map(str, found))) == found


def test_a_cluster_can_be_written_and_read_again() -> None:
    cluster = ClusterSettings(bootstrap_servers=(HostPort("a", 1), HostPort("::1", 2)))
    dumped = cluster.model_dump(by_alias=True)
    assert dumped["bootstrap.servers"] == "a:1,[::1]:2"
    assert ClusterSettings.model_validate(dumped) == cluster


# Topics.


@given(st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True), st.text(max_size=30))
def test_a_name_matches_itself_alone(name: str, other: str) -> None:
    assert is_topic_name(name)
    assert topic_pattern(name).fullmatch(name)
    assert bool(topic_pattern(name).fullmatch(other)) is (other == name)


@given(st.text(max_size=15))
def test_any_entry_is_taken_or_refused(entry: str) -> None:
    """An entry that is taken can be used; nothing but a refusal is ever raised."""
    try:
        assert check_topic_entry(entry) == entry
    except PydanticCustomError:
        return
    assert Selection(topics=("x",), exclude=(entry,)).selects("x") is (topic_pattern(entry).fullmatch("x") is None)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("", "is empty"),
        (".", "is not a topic name"),
        ("..", "is not a topic name"),
        ("x" * 250, "is not a topic name"),
        ("a,b", "is several names in one"),
        ("a, b, c", "is several names in one"),
        ("(", "is not a valid regular expression"),
        ("a{9999999999999}", "is not a valid regular expression"),
        ("(" * 5_000 + ")" * 5_000, "is not a valid regular expression"),
        ("[[a]", "is not a valid regular expression"),  # "possible nested set": not what it seems
    ],
)
def test_no_topic_entry(entry: str, problem: str) -> None:
    with pytest.raises(PydanticCustomError, match=problem):
        check_topic_entry(entry)


@pytest.mark.parametrize("entry", ["x" * 249, "a.b", "[a,b]", "a{1,2}", "(a|b),c", ".*", r"\d+"])
def test_topic_entry(entry: str) -> None:
    assert check_topic_entry(entry) == entry
