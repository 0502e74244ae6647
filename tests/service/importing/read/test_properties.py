"""``.properties`` files: the same as Java's own class reads."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from mirror.service.config import ConfigError
from mirror.service.importing.read.properties import Property, read
from tests.service.importing import java

pytestmark = pytest.mark.long
PIECES = [
    "a",
    "b.c",
    "=",
    ":",
    " ",
    "\t",
    "\f",
    "\\",
    "\n",
    "\r",
    "\r\n",
    "#",
    "!",
    "u",
    "\\u0041",
    "é",
    "n",
    "->",
    "\\\n",
]


@pytest.fixture(scope="module")
def classes() -> Iterator[Any]:
    """A JVM."""
    with java.running() as found:
        yield found


def of_java(classes: Any, raw: bytes) -> dict[str, str] | None:
    """What Java reads; None if it refuses the file."""
    properties = classes.java.util.Properties()
    try:
        properties.load(classes.java.io.ByteArrayInputStream(raw))
    except Py4JJavaError:
        return None
    return {name: properties.getProperty(name) for name in properties.stringPropertyNames()}


def ours(raw: bytes) -> dict[str, str] | None:
    try:
        return {each.key: each.value for each in read("f", raw)}
    except ConfigError:
        return None


@given(text=st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
@example(text="\\\n#a=b\nc=d")
@example(text="a=b\\\n   #c\\\n!d")
@example(text="a\\=b\\:c\\ d = e\\\\")
@example(text="\\")
@example(text="a=b\\")
@example(text="a=\\u00")
@example(text="  \f a \t = \t b  ")
@example(text="\\\n\\\n\n# a\nb")
@example(text="a\\\r\n  b c")
def test_like_java(classes: Any, text: str) -> None:
    raw = text.encode("latin-1")
    assert ours(raw) == of_java(classes, raw)


def test_lines_and_separators() -> None:
    raw = b"# first\nclusters = a, \\\n   b\n\n! more\na->b.enabled:true\nlonely\nempty=\n"
    assert read("f", raw) == [
        Property("clusters", "a, b", 2, True),
        Property("a->b.enabled", "true", 6, True),
        Property("lonely", "", 7, False),
        Property("empty", "", 8, True),
    ]


def test_what_stands_twice_is_there_twice() -> None:
    assert [each.value for each in read("f", b"a=1\na=2\n")] == ["1", "2"]


def test_two_escapes_are_one_character() -> None:
    assert read("f", rb"a=\ud83d\ude00")[0].value == "\U0001f600"
    assert read("f", rb"a=\ud83dx")[0].value == "\ud83dx"


def test_a_wrong_escape_is_told_with_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        read("mm2.properties", b"a=b\npassword=SECRET\\u00zz\n")
    assert str(caught.value).startswith("mm2.properties:2: ")
    assert "SECRET" not in str(caught.value)


def test_bytes_are_latin_1() -> None:
    assert read("f", b"a=\xe9\xff")[0].value == "éÿ"
