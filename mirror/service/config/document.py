"""Reads a YAML file into plain data, with the line of every key, and with each `${...}` replaced by its value.

It works on the node tree that ruamel.yaml composes, not on loaded objects: only the nodes have the line of each key and
list item, and only they still have duplicate keys.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLWarning
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from mirror.service.config.checks import anchors, syntax
from mirror.service.config.errors import ConfigError, ConfigFinding, Path, elide, key_text
from mirror.service.config.settings import Resolved

FILE_MAX_BYTES = 2**20
SECRET_MAX_BYTES = 2**16
NODES_MAX = 20_000
"""Most values in a file. The value of an alias counts each time it is used: otherwise a few lines could stand for
billions of values."""
SHOWN_MAX = 60
"""Most characters of an offending value that a message repeats."""
PATH_SHOWN_MAX = 300

EXAMPLE = "`mirror config example` prints one that works"

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {_TAG + "str", _TAG + "timestamp"}  # a date is a fine topic name
_PLAIN_TAGS = {_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"}
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_SHOWABLE = re.compile(r"\$\{(env:[A-Za-z_][A-Za-z0-9_]*|file:[^${}]+)\}")
"""A well-formed reference. It is not a secret itself, so messages may show it."""
SECRETS = ("password", "secret", "oauthbearer.token", "otlp.headers")
"""Endings of the keys whose values are secrets."""
_NOTHING = "nothing"
"""The word for a missing value in messages."""
_ANCHOR = "begins with &, so that YAML takes its first word for the name of an anchor, which nothing uses"
_UNDEFINED = "is an undefined alias: YAML takes a value that begins with * for the name of another one"
_LITERAL = "or write $${ for a literal ${"


@dataclass(slots=True)
class Document:
    """The content of a file.

    Attributes:
        file: the file's name.
        data: the values.
        lines: path -> line, counted from 1.
        shown: path -> the value as messages show it.
        broken: paths that have a finding already: nothing more is reported about them.
        findings: the findings so far.
    """

    file: str
    data: Any = None
    lines: dict[Path, int] = field(default_factory=lambda: {(): 1})
    shown: dict[Path, str] = field(default_factory=dict)
    broken: set[Path] = field(default_factory=set)
    findings: list[ConfigFinding] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Returns the line of a key. If the key is not in the file: the line of the innermost section around it."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def is_broken(self, path: Path) -> bool:
        return any(path[:depth] in self.broken for depth in range(len(path) + 1))

    def add(self, path: Path, problem: str, remedy: str, line: int | None = None) -> None:
        self.findings.append(
            ConfigFinding(
                file=self.file, line=line or self.line(path), key=key_text(path), problem=problem, remedy=remedy
            )
        )

    def break_off(self, path: Path, problem: str, remedy: str, line: int | None = None) -> None:
        """Adds a finding; the value at `path` is not checked any more."""
        self.add(path, problem, remedy, line)
        self.broken.add(path)


class LookupFailed(Exception):
    """A `${...}` that cannot be resolved. `args`: the problem and the remedy."""


def read_document(file: str, env: Mapping[str, str] | None) -> Document:
    """Reads and parses a file. Raises ConfigError if it yields no data; other findings are in the result.

    ``env``: the variables for `${env:NAME}`. None: the file belongs to another program, so nothing is looked up, and
    messages do not repeat its values.
    """
    text = _decoded(file, read_raw(file))
    yaml = YAML(typ="safe", pure=True)
    reader = _Reader(Document(file), yaml, env)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", YAMLWarning)  # redefining an anchor is legal
            root = yaml.compose(text)
        reader.document.data = None if root is None else reader.value(root, ())
        if reader.has_anchors and env is not None:
            for line, path in anchors.unused_anchors(text):
                # In other cases, the anchor is most likely intended.
                if _is_secret(path) or reader.document.shown.get(path) == _NOTHING:
                    reader.document.break_off(path, _ANCHOR, "put the value in quotes, or remove the anchor", line)
    except RecursionError:  # also the result of an alias that contains itself
        raise _unreadable(file, 1, "is nested too deeply", EXAMPLE) from None
    except YAMLError as error:
        for line, path in anchors.undefined_aliases(text) if isinstance(error, ComposerError) else ():
            reader.document.break_off(path, _UNDEFINED, "put the value in quotes", line)
        if reader.document.findings:
            raise ConfigError(reader.document.findings) from None
        raise _not_yaml(file, text, error) from None
    if reader.document.data is None and not reader.document.findings:
        raise _unreadable(file, 1, "is empty", f"write clusters and flows; {EXAMPLE}")
    return reader.document


def read_raw(file: str) -> bytes:
    """Returns a file's bytes. Raises ConfigError if it cannot be read, or is larger than a configuration."""
    try:
        with open(file, "rb") as stream:
            raw = stream.read(FILE_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _unreadable(file, None, f"cannot be read: {reason}", "name a readable YAML file") from None
    if len(raw) > FILE_MAX_BYTES:
        raise _unreadable(file, None, f"is larger than {FILE_MAX_BYTES} bytes", "name a configuration file")
    return raw


def _decoded(file: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _unreadable(file, line, "is not UTF-8 text", "save it as UTF-8") from None


def _unreadable(file: str, line: int | None, problem: str, remedy: str) -> ConfigError:
    return ConfigError([ConfigFinding(file=file, line=line, key="", problem=f"the file {problem}", remedy=remedy)])


def _not_yaml(file: str, text: str, error: YAMLError) -> ConfigError:
    line = syntax.where(error) if isinstance(error, MarkedYAMLError) else None
    if line is not None:
        line, problem = line + 1, getattr(error, "problem", None)
    else:  # a character that YAML does not allow: the error has only its position
        line, problem = text.count("\n", 0, getattr(error, "position", 0)) + 1, getattr(error, "reason", None)
    return _unreadable(file, line, f"is not valid YAML: {syntax.told(str(problem))}", syntax.remedy(str(problem)))


class _Reader:
    """Walks the nodes once, turning them into data and noting the line of everything."""

    def __init__(self, document: Document, yaml: YAML, env: Mapping[str, str] | None) -> None:
        self.document = document
        self._yaml = yaml
        self._env = env
        self._nodes = 0
        self.has_anchors = False
        """True if a scalar value has an anchor."""

    def value(self, node: Node, path: Path) -> Any:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise _unreadable(self.document.file, node.start_mark.line + 1, "holds too many values", EXAMPLE)
        if isinstance(node, MappingNode):
            self.document.shown[path] = "a mapping"
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            self.document.shown[path] = "a list"
            return [self._item(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        raise AssertionError(f"unknown kind of YAML node {node!r}")

    def _item(self, node: Node, path: Path) -> Any:
        self.document.lines[path] = node.start_mark.line + 1
        return self.value(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: list[MappingNode] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _TAG + "merge":
                merged += self._merged(value_node, path, line)
                continue
            key = key_node.value
            if isinstance(key_node, MappingNode) and path:
                remedy = "write the value itself, or ${env:NAME} or ${file:PATH}"
                self.document.break_off(path, "holds {{...}}, a template that nothing has filled in", remedy, line)
            elif not isinstance(key_node, ScalarNode) or key_node.tag not in _TEXT_TAGS or not _is_unicode(key):
                shown = key if isinstance(key_node, ScalarNode) else "[...]"
                self.document.add((*path, shown), "is a key that is not text", "put it in quotes", line)
            elif key in data:
                first = self.document.lines[*path, key]
                self.document.add((*path, key), f"stands twice, first in line {first}", _remedy_of_twice(path), line)
            else:
                self.document.lines[*path, key] = line
                data[key] = self.value(value_node, (*path, key))
        self._merge(merged, path, data)
        return data

    def _merged(self, node: Node, path: Path, line: int) -> list[MappingNode]:
        """Returns the mappings that a `<<` refers to: one, or several if its value is a list."""
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        if all(isinstance(each, MappingNode) for each in nodes):
            return list(nodes)
        self.document.add(path, "<< takes an alias of a mapping", "write <<: *name", line)
        return []

    def _merge(self, merged: list[MappingNode], path: Path, data: dict[str, Any]) -> None:
        """Adds the keys that `<<` merges; keys of the mapping itself, and those merged before, win."""
        for mapping in merged:
            rest = [(k, v) for k, v in mapping.value if not (isinstance(k, ScalarNode) and k.value in data)]
            data.update(self._mapping(MappingNode(mapping.tag, rest, mapping.start_mark, mapping.end_mark), path))

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        tag, text = str(node.tag), node.value
        self.has_anchors |= node.anchor is not None
        if tag in _TEXT_TAGS:
            self.document.shown[path] = f"'{_elide(text)}'"
            return self._text(text, path)
        self.document.shown[path] = _elide(text) if text else _NOTHING
        try:
            if tag in _PLAIN_TAGS:
                return self._yaml.constructor.construct_object(node, deep=True)
            told = "" if self._env is None or _is_secret(path) else f" ({_elide(tag.removeprefix(_TAG))})"
            problem = f"has a tag that means nothing here{told}"
            remedy = "write a plain value; one that begins with ! has to be in quotes"
        except ValueError:
            problem, remedy = f"is no {tag.removeprefix(_TAG)}", "write a plain value"
        self.document.break_off(path, problem, remedy, node.start_mark.line + 1)
        return None

    def _text(self, text: str, path: Path) -> str:
        if self._env is None:
            return text
        try:
            found = _REFERENCE.sub(self._look_up, text)
        except LookupFailed as failed:
            problem, remedy = failed.args
            hidden = _is_secret(path) and not _SHOWABLE.fullmatch(text)
            self.document.break_off(path, "holds a ${...} that means nothing" if hidden else problem, remedy)
            return text
        if not _is_unicode(found):
            self.document.break_off(path, "holds half a character", "write it as plain UTF-8 text")
            return text
        looked_up = [match for match in _REFERENCE.finditer(text) if match[0] != "$${"]
        if not looked_up:
            return found
        kind, _, name = looked_up[0][1].partition(":")
        whole = kind == "file" and looked_up[0][0] == text
        return Resolved(found, str(self._path_of(name).absolute()) if whole else "")

    def _look_up(self, match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        kind, colon, name = match[1].partition(":")
        if not match[2]:
            raise LookupFailed("holds ${ without a closing }", f"close it, {_LITERAL}")
        if not colon or not name or kind not in ("env", "file"):
            raise LookupFailed(
                f"cannot look up {_elide(match[0])}", f"write ${{env:NAME}} or ${{file:PATH}}, {_LITERAL}"
            )
        return self._from_env(name) if kind == "env" else self._from_file(name)

    def _from_env(self, name: str) -> str:
        if self._env is None or name not in self._env:
            raise LookupFailed(f"environment variable {_elide(name)} is not set", "set it, or write the value itself")
        return self._env[name]

    def _path_of(self, name: str) -> FilePath:
        return FilePath(self.document.file).parent / name

    def _from_file(self, name: str) -> str:
        """Returns a file's content without its last newline; a relative path starts at the configuration's folder."""
        path = self._path_of(name)
        shown = elide(str(path), PATH_SHOWN_MAX)
        remedy = "name a readable text file, such as one below /run/credentials"
        try:
            if not path.is_file():  # also excludes a pipe, on which we would wait for ever
                raise LookupFailed(f"there is no file {shown}", remedy)
            with open(path, "rb") as stream:
                raw = stream.read(SECRET_MAX_BYTES + 1)
            if len(raw) > SECRET_MAX_BYTES:
                raise LookupFailed(f"{shown} is larger than {SECRET_MAX_BYTES} bytes", remedy)
            return raw.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise LookupFailed(f"{shown} is not UTF-8 text", remedy) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise LookupFailed(f"{shown} cannot be read: {reason}", remedy) from None


def _is_secret(path: Path) -> bool:
    """Returns True if the value at this path is a secret: messages must not repeat it."""
    return bool(path) and str(path[-1]).endswith(SECRETS)


def _elide(text: str) -> str:
    return elide(text, SHOWN_MAX)


def _is_unicode(text: str) -> bool:
    """Returns True if the text has no lone surrogates. They can come from YAML escapes and from bytes in the
    environment."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _remedy_of_twice(path: Path) -> str:
    if path == ("flows",):
        return "remove one of them; or give one of its clusters a second alias: flows are named by their clusters"
    return "remove one of them"
