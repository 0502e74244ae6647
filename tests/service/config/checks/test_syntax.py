"""What is said about text that is not YAML: where the mistake is, and what to do."""

import pytest

from tests.service.config.loading import Load


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ("a:\n\tb: 1\n", 2, "indent with blanks: YAML takes no tabs there"),
        ('a: 1\nb: "x\\.y"\n', 2, "write \\\\ for a backslash in double quotes, or use single quotes"),
        ("a: @b\n", 1, "put the value in quotes"),
        ("a: `b`\n", 1, "put the value in quotes"),
        ("a: %b\n", 1, "put the value in quotes"),
        ("a: [*]\n", 1, "put it in quotes: a value cannot begin with * or &"),
        ("a: 1\nb: *\n", 2, "put it in quotes: a value cannot begin with * or &"),
        ("a: 1\nb: !c!d\n", 2, "put the value in quotes: it begins with !, as a tag does"),
        ("a: b: c\n", 1, 'put a value that has ": " in quotes, or correct the indentation'),
        ("a: 1\n---\nb: 2\n", 2, "leave one document in the file, without lines of --- or ..."),
        ("a: 'b\nc: d\n", 1, "close the quote that opens in this line"),
        ('a: 1\nb: "c\nd: e\n', 2, "close the quote that opens in this line"),
        ("a:\n- b\n-c\nd: e\n", 3, 'write "key: value", or a dash and a blank before a list\'s item'),
        ("a: 1\n<<<<<<< HEAD\nb: 2\n", 2, 'write "key: value", or a dash and a blank before a list\'s item'),
        ("a: [b\nc: d\n", 2, "correct the line, or the one before it: a quote, a bracket, a colon or the indentation"),
        (
            "a:\n  b: 1\n c: 2\n",
            3,
            "correct the line, or the one before it: a quote, a bracket, a colon or the indentati",
        ),
    ],
)
def test_not_yaml(loading: Load, text: str, line: int, remedy: str) -> None:
    (error,) = loading.errors(text)
    assert error.startswith(f"{line}: the file is not valid YAML: ")
    assert f"; {remedy}" in error, error
