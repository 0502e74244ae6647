"""The kinds of value that a setting can be: sizes, durations, counts, switches, choices, addresses, topic patterns.

Each kind turns a value of the YAML file into the Python value, or refuses it with a problem and a remedy. None of them
puts the offered value into its message: it may come from a secret file. The code that prints the message adds the value
as the file spells it.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from mirror.audited import SUFFIX
from mirror.net.options import address_text
from mirror.net.security.options import Secret
from mirror.service.config.checks.refusal import refused
from mirror.service.config.settings import Resolved

INT32_MAX = 2**31 - 1
"""Sizes and durations are 32-bit integers in Kafka's requests."""

KIB, MIB, GIB = 2**10, 2**20, 2**30
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}

# A reference that is resolved when the file is loaded may stand anywhere; the JSON schema has to accept it.
INDIRECT_SCHEMA = {"type": "string", "pattern": r"\$\{(env|file):[^}]+\}"}

_SIZE = re.compile(r"([0-9]{1,18}) ?(B|KiB|MiB|GiB)?")
_KEYSTORES = (".jks", ".p12", ".pfx", ".keystore", ".truststore")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?")
_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<plain>[^\[\]:]*)):(?P<port>[0-9]{1,9})")


def format_size(size: int) -> str:
    """Returns bytes in the largest unit that divides them: 4194304 -> "4MiB". `parse_size` reads it back."""
    for unit, factor in sorted(UNITS.items(), key=lambda item: -item[1]):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def parse_size(text: str) -> int | None:
    """Returns the number of bytes for "4194304", "4096KiB" or "4 MiB"; None if the text is not a size."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) * UNITS[match[2] or "B"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A whole number within a range. `also`: a value outside the range with a special meaning (-1: default)."""

    minimum: int
    maximum: int = INT32_MAX
    also: int | None = None

    what = "a whole number"
    example = "digits alone, such as 5"
    unit = ""

    def read(self, value: object) -> int:
        """Returns the number; raises PydanticCustomError for another type or a value out of range."""
        number = self._number(value)
        if number is None:
            raise refused(f"must be {self.what}", f"write {self.example}")
        if not (self.minimum <= number <= self.maximum or number == self.also):
            raise refused(f"must be {self.range_text()}", "write a value in that range")
        return number

    def range_text(self) -> str:
        also = "" if self.also is None else f", or {self.also}"
        return f"from {self.show(self.minimum)} to {self.show(self.maximum)}{also}"

    def show(self, number: int) -> str:
        return f"{number}{self.unit}"

    def _number(self, value: object) -> int | None:
        if isinstance(value, bool):  # bool is an int in Python, but not to an operator
            return None
        if isinstance(value, int):
            return value
        if isinstance(value, str):
            return self._parse(value.strip())
        return None

    def _parse(self, text: str) -> int | None:
        return int(text) if _WHOLE.fullmatch(text) else None

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(int)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        options: list[dict[str, Any]] = [{"type": "integer", "minimum": self.minimum, "maximum": self.maximum}]
        if self.also is not None:
            options.append({"const": self.also})
        return {"anyOf": [*options, *self._text_schemas(), INDIRECT_SCHEMA]}

    def _text_schemas(self) -> list[dict[str, Any]]:
        return [{"type": "string", "pattern": f"^{_WHOLE.pattern}$"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Quantity):
    """A number without a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Milliseconds(Quantity):
    """A duration: a whole number of milliseconds, as in Kafka's settings."""

    what = "a whole number of milliseconds"
    example = "digits alone, such as 30000 for half a minute"
    unit = " ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size(Quantity):
    """Bytes: a plain number, or one with a binary unit ("512KiB", "4MiB")."""

    what = "a size in bytes"
    example = "4194304, 4096KiB or 4MiB, for instance"

    def show(self, number: int) -> str:
        return f"{number} bytes ({format_size(number)})"

    def _parse(self, text: str) -> int | None:
        size = parse_size(text)
        return int(text) if size is None and _WHOLE.fullmatch(text) else size

    def _text_schemas(self) -> list[dict[str, Any]]:
        return [{"type": "string", "pattern": f"^{_SIZE.pattern}$"}]


class Switch:
    """true or false. Text is accepted as well, because a looked-up value (`${env:NAME}`) is always text."""

    @staticmethod
    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
        raise refused("must be true or false", "write true or false")

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, {"enum": ["true", "false"]}, INDIRECT_SCHEMA]}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words. `empty`: True if the empty string is accepted, too. `fold`: applied to the text first, such
    as ``str.lower``."""

    words: tuple[str, ...]
    fold: Callable[[str], str] = str
    empty: bool = False

    def read(self, value: object) -> str:
        word = self.fold(value) if isinstance(value, str) else ""
        if word in self.words or (self.empty and value == ""):
            return word
        raise refused(f"must be {' or '.join(self.words)}", f"write {' or '.join(self.words)}")

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"enum": [*self.words, *[""] * self.empty]}, INDIRECT_SCHEMA]}


class Text:
    """One line of text that is not empty."""

    what, remedy = "text in one line", "put it in quotes"

    def read(self, value: object) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise refused(f"must be {self.what}", self.remedy)
        return value

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda value: value if value == "" else self.read(value))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string"}


class FileName(Text):
    """The path of a readable PEM file. A relative path is resolved against the configuration's folder, which is passed
    as the context of the validation."""

    what, remedy = "the path of a file", "write an absolute path, or one from this file's folder"

    def found(self, value: object, info: core_schema.ValidationInfo) -> str:
        """Returns the absolute path; raises PydanticCustomError if there is no such file."""
        if value == "":
            return ""
        path = Path(info.context or ".").absolute() / self.read(value)
        if path.suffix.lower() in _KEYSTORES:
            raise refused(
                "names a keystore of Java or a PKCS #12 file, not PEM text",
                "convert it: openssl pkcs12 -in FILE.p12 -out FILE.pem (keytool -importkeystore makes .p12 of .jks)",
            )
        if not path.is_file() or not os.access(path, os.R_OK):
            raise refused("names no file that can be read", self.remedy)
        return str(path)

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self.found)


class MetricsFile(Text):
    """The path of a file of metrics, which need not exist. A relative path is resolved as in ``FileName``."""

    what, remedy = "the path of a file", FileName.remedy

    def found(self, value: object, info: core_schema.ValidationInfo) -> str:
        """Returns the absolute path; raises PydanticCustomError for a name that node_exporter would ignore."""
        if value == "":
            return ""
        path = Path(info.context or ".").absolute() / self.read(value)
        if path.suffix != SUFFIX:
            raise refused(f"does not end in {SUFFIX}, and node_exporter reads no other files", "name it so")
        return str(path)

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self.found)


class SecretText:
    """A password or a token. From ``${file:PATH}``, it is read again whenever it is used."""

    @staticmethod
    def read(value: object) -> Secret:
        if isinstance(value, Secret):
            return value
        if not isinstance(value, str):
            # A message with "must be" would repeat the value.
            raise refused("has to be text", "put it in quotes, or write ${file:PATH} or ${env:NAME}")
        return Secret(str(value), value.file if isinstance(value, Resolved) else "")

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        shown = core_schema.plain_serializer_function_ser_schema(lambda secret: "***" if secret else "")
        return core_schema.no_info_plain_validator_function(self.read, serialization=shown)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string"}


class Words:
    """A mapping of names to texts."""

    @staticmethod
    def read(value: object) -> dict[str, str]:
        if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
            raise refused("must be a mapping of names to texts", "write {name: value}")
        return dict(value)

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": {"type": "string"}}


class HostPort(NamedTuple):
    """An address, such as a broker's. `str()` gives "host:port", with brackets around an IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)


def _is_host(host: str) -> bool:
    """Returns False for a text of only digits and dots that is not an IPv4 address."""
    if host.strip("0123456789."):
        return True
    try:
        return bool(IPv4Address(host))
    except ValueError:
        return False


class Addresses:
    """`bootstrap.servers`: "host:port,host:port", or a list of such texts."""

    remedy = 'write "host:port", more of them separated by commas, such as "kafka-1:9092,kafka-2:9092"'
    without_protocol = "security.protocol says the protocol"
    lowest_port = 1

    @classmethod
    def read(cls, value: object) -> tuple[HostPort, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise refused("must be addresses of brokers", cls.remedy)
        if not any(str(part).strip() for part in parts):
            raise refused("names no broker", cls.remedy)
        count = 0 if isinstance(value, str) and len(parts) == 1 else len(parts)
        found = [cls._address(part, number, count) for number, part in enumerate(parts, start=1)]
        return tuple(dict.fromkeys(found))

    @classmethod
    def _address(cls, part: object, number: int, count: int) -> HostPort:
        """Parses one address. ``number``: its position in the list; ``count``: number of addresses in the list; 0: the
        value is a single address."""
        which = f"address {number} of {count} is" if count else "is"
        if isinstance(part, HostPort):
            return part
        if not isinstance(part, str) or not part.strip():
            raise refused(f"{which} not host:port", cls.remedy)
        text = part.strip()
        if "://" in text:
            raise refused(f"{which} a URL, not host:port", f"{cls.without_protocol}; {cls.remedy}")
        match = _ADDRESS.fullmatch(text)
        host = match and (match["bracketed"] or (_HOST.fullmatch(match["plain"] or "") and match["plain"]))
        if not match or not host:
            raise refused(f"{which} not host:port", cls.remedy)
        if match["plain"] and not _is_host(host):
            raise refused(f"{which} not host:port: such a host is no IPv4 address", cls.remedy)
        port = int(match["port"])
        if not cls.lowest_port <= port <= 65_535:
            raise refused(f"{which} an address with a port outside {cls.lowest_port} to 65535", cls.remedy)
        return HostPort(host, port)

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(lambda found: ",".join(map(str, found))),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = {"type": "string", "minLength": 1}
        return {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}


class Listen(Addresses):
    """`http.listen`: the address on which this program listens; port 0: any free port."""

    remedy = (
        'write "host:port", such as "127.0.0.1:9464", or "0.0.0.0:9464" for all interfaces; port 0 takes any that is '
        "free and logs it"
    )
    without_protocol = "leave the protocol out"
    lowest_port = 0

    @classmethod
    def read_one(cls, value: object) -> HostPort:
        """Returns the address; raises PydanticCustomError for anything else."""
        return cls._address(value, 1, 0)

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read_one, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}
