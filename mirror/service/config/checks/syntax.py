"""Turns the YAML parser's errors into a problem, a remedy and a line."""

import re

from ruamel.yaml.error import MarkedYAMLError

_ELSE = "correct the line, or the one before it: a quote, a bracket, a colon or the indentation"
_FOUND = (
    (re.compile(r"found character '\\?\t' |found a tab|'\\t'"), "indent with blanks: YAML takes no tabs there"),
    (re.compile(r"unexpected end of stream"), "close the quote that opens in this line"),
    (re.compile(r"unknown escape character"), "write \\\\ for a backslash in double quotes, or use single quotes"),
    (re.compile(r"character '[@`%]'"), "put the value in quotes"),
    (re.compile(r"expected alphabetic or numeric character"), "put it in quotes: a value cannot begin with * or &"),
    (re.compile(r"undefined tag handle"), "put the value in quotes: it begins with !, as a tag does"),
    (re.compile(r"mapping values are not allowed"), 'put a value that has ": " in quotes, or correct the indentation'),
    (re.compile(r"another document"), "leave one document in the file, without lines of --- or ..."),
    (re.compile(r"could not find expected ':'"), 'write "key: value", or a dash and a blank before a list\'s item'),
)
_TAG = re.compile(r"undefined tag handle.*", re.DOTALL)


def told(problem: str) -> str:
    """Returns the parser's problem in one line, without parts of the text that may be an unquoted secret."""
    return _TAG.sub("undefined tag handle", " ".join(problem.split()))


def remedy(problem: str) -> str:
    """Returns the remedy for the parser's problem."""
    return next((remedy for found, remedy in _FOUND if found.search(problem)), _ELSE)


def where(error: MarkedYAMLError) -> int | None:
    """Returns the line of the mistake, counted from 0; None if the parser does not say.

    The parser notices a key without a colon, or a quote that is not closed, only further on: then it is the line at
    which the key or the quote begins.
    """
    context, mark = str(error.context or ""), error.problem_mark
    if error.context_mark is not None and ("simple key" in context or _never_closed(error)):
        mark = error.context_mark
    return None if mark is None else int(mark.line)


def _never_closed(error: MarkedYAMLError) -> bool:
    return "quoted scalar" in str(error.context or "") and "end of stream" in str(error.problem or "")
