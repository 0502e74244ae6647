"""Reads Java's ``.properties`` files as ``java.util.Properties.load(InputStream)`` does.

The bytes are ISO 8859-1; other characters are written as ``\\uXXXX``. A line that ends in an odd number of backslashes
goes on in the next one, whose leading blanks are dropped. A key ends at the first ``=``, ``:`` or blank without a
backslash.
"""

from collections.abc import Iterator
from typing import NamedTuple

from mirror.service.config.errors import ConfigError, ConfigFinding

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A key, its value, the line where it begins (from 1), and whether a separator followed the key."""

    key: str
    value: str
    line: int
    separated: bool


def read(file: str, raw: bytes) -> list[Property]:
    """Returns the properties in the order of the file; a key that occurs twice is returned twice.

    Raises:
        ConfigError: a ``\\u`` is not followed by four hexadecimal digits, which Java refuses as well.
    """
    found = []
    for line, text in _logical_lines(raw.decode("latin-1")):
        end, value_at, separated = _split(text)
        try:
            key, value = _unescaped(text[:end]), _unescaped(text[value_at:])
        except ValueError:
            finding = ConfigFinding(
                file=file, line=line, key="", problem=r"has a \u that is not followed by four hexadecimal digits",
                remedy=r"write \\u for a backslash and a u",
            )  # fmt: skip
            raise ConfigError([finding]) from None
        found.append(Property(key, value, line, separated))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number of the first line, and the text, of each logical line that is not empty.

    It follows Java's ``LineReader`` also in cases that its manual does not mention: a comment may follow a line with
    only a backslash, and a backslash that is the file's last character is an empty line.
    """
    at, line = 0, 1
    while at < len(text):
        found, at, begin, line = _logical_line(text, at, line)
        if found is not None:
            yield begin, found


def _logical_line(text: str, at: int, line: int) -> tuple[str | None, int, int, int]:
    """Returns a logical line (None at the end of the file), the position of the next one, and the line numbers at which
    this one and the next one begin."""
    chars: list[str] = []
    begin, skips, continued, escaped = line, True, False, False
    while at < len(text):
        char = text[at]
        at += 1
        ends = char in "\r\n"
        if ends:
            at += char == "\r" and text.startswith("\n", at)
            line += 1
        if skips and (char in _BLANK or (ends and not continued)):
            continue
        skips = continued = False
        if not chars and char in "#!":
            at = _end_of_line(text, at)
            skips = True
        elif not ends:
            if not chars:
                begin = line
            chars.append(char)
            escaped = char == "\\" and not escaped
        elif not chars:
            skips = True
        elif not escaped or at == len(text):
            return "".join(chars[:-1] if escaped else chars), at, begin, line
        else:
            chars.pop()
            skips = continued = True
            escaped = False
    return ("".join(chars[:-1] if escaped else chars) if chars else None), at, begin, line


def _end_of_line(text: str, at: int) -> int:
    """Returns the position at which the line that contains ``at`` ends, before its line terminator."""
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at


def _split(line: str) -> tuple[int, int, bool]:
    """Returns the position behind the key, the position of the value, and whether there is a separator."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    end = at = min(end, len(line))
    while at < len(line) and line[at] in _BLANK:
        at += 1
    if at < len(line) and line[at] in "=:":
        at += 1
        while at < len(line) and line[at] in _BLANK:
            at += 1
    return end, at, at > end


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts, at = [], 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                    raise ValueError("no hexadecimal digits")
                char, at = chr(int(digits, 16)), at + 4
            else:
                char = _ESCAPES.get(char, char)
        elif char == "\\":  # the file's last character
            break
        parts.append(char)
    # Java's text is UTF-16: two escapes can be one character.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
