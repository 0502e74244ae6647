"""``mirror config import``: turns a configuration file of MirrorMaker 2 into one for the mirror."""

import json
import re
from dataclasses import dataclass
from typing import Literal

from mirror.service.config.document import read_raw
from mirror.service.importing import accounting
from mirror.service.importing.checking import check
from mirror.service.importing.make.assemble import assemble
from mirror.service.importing.make.flows import Offsets
from mirror.service.importing.read import dedicated, properties, strimzi
from mirror.service.importing.writing import counted, decisions, document

Format = Literal["auto", "properties", "strimzi"]

_KIND = re.compile(r"""^[\s{]*["']?kind["']?\s*:\s*["']?([A-Za-z0-9]+)""", re.MULTILINE)
_WHAT = "give an mm2.properties of MirrorMaker 2's dedicated mode, or a KafkaMirrorMaker2 resource of Strimzi as YAML"


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.

    Attributes:
        text: the mirror's configuration, with comments.
        summary: how many keys were taken over, in one line.
        decisions: what needs a decision by the user, one line each.
    """

    text: str
    summary: str
    decisions: tuple[str, ...]


def read(file: str, *, form: Format = "auto", offsets: Offsets | None = None) -> Imported:
    """Reads a configuration of MirrorMaker 2, and returns one for the mirror.

    Args:
        file: path of the file.
        form: format of the file; auto: detected from its content.
        offsets: value of ``offsets`` for all flows; None: chosen for each flow, with the reason in the text.

    Raises:
        ConfigError: the file cannot be read, has another format, or has no flow that could be written.
    """
    raw = read_raw(file)
    found = _detected(file, raw) if form == "auto" else form
    outcome = assemble(strimzi.read(file) if found == "strimzi" else dedicated.read(file, raw), offsets=offsets)
    check(outcome)
    return Imported(document(outcome), counted(outcome), tuple(decisions(outcome)))


def _detected(file: str, raw: bytes) -> Format:
    if b"\0" in raw:
        raise accounting.refuse(file, None, "the file is no text", _WHAT)
    text = raw.decode("latin-1")
    if kind := _KIND.search(text):
        if kind[1] == strimzi.KIND:
            return "strimzi"
        if "apiVersion" in text:
            line = text.count("\n", 0, kind.start(1)) + 1
            raise accounting.refuse(file, line, "is a resource of another kind than KafkaMirrorMaker2", _WHAT, "kind")
    if text.lstrip()[:1] == "{":
        raise accounting.refuse(file, 1, _of_json(text), _WHAT)
    keys = {each.key for each in properties.read(file, raw)}
    if "clusters" in keys or any("->" in key for key in keys):
        return "properties"
    raise accounting.refuse(file, 1, "the file is no configuration of MirrorMaker 2", _WHAT)


def _of_json(text: str) -> str:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return "the file is JSON, or begins like it"
    is_connector = isinstance(found, dict) and ("connector.class" in found or "config" in found)
    return "the file is JSON of a connector of Kafka Connect" if is_connector else "the file is JSON"
