"""Imports a text, and loads what came out as an operator would who has made every file and set every variable."""

import re
from pathlib import Path

from mirror.service.config import Config, load
from mirror.service.importing.command import Imported, read
from mirror.service.importing.make.flows import Offsets

SAMPLES = Path(__file__).parent / "samples"
_ENV = re.compile(r"(?<!\$)\$\{env:([^}]+)\}")
_FILE = re.compile(r"(?<!\$)\$\{file:([^}]+)\}")
_LOCATION = re.compile(r'^(    [\w.]+\.location: )"?([^"#\n]+?)"?(?=  #|$)', re.MULTILINE)
TWO = "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
"""The least that can be imported: four lines."""


def imported(folder: Path, text: str, *, offsets: Offsets | None = None, name: str = "mm2.properties") -> Imported:
    """Imports a text from a file of this name."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read(str(path), offsets=offsets)


def strimzi(folder: Path, text: str) -> Imported:
    """Imports a resource."""
    return imported(folder, text, name="mirrormaker.yaml")


def loaded(folder: Path, text: str) -> Config:
    """Loads our configuration by the program's own loader. Files that it names exist, and hold something."""
    secret = folder / "secret"
    secret.write_text("a secret\n")
    text = _FILE.sub(f"${{file:{secret}}}", _LOCATION.sub(rf'\1"{secret}"', text))
    path = folder / "mirror.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, env={name: "value" for name in _ENV.findall(text)})
