"""What docstrings and comments cite is there: ``relay.hot.gather`` is a module, ``net.errors.Refused`` is in one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "mirror"
ROOMS = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
BESIDE = {"mirror", "tests", "chaos", "bench"}
CITED = re.compile(r"``([a-z_]+(?:\.[A-Za-z_]\w*)+)(?:\(\))?``")
OF_OTHERS = re.compile(r"spark\.(task|python|executor|driver|sql)\.|service\.(name|instance\.id|version)$")
"""Settings of Spark, and attributes of OpenTelemetry."""


def cited() -> Iterator[tuple[str, str]]:
    """Yields where it stands, and the dotted name."""
    for room in sorted(BESIDE):
        for path in sorted((ROOT / room).rglob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for name in CITED.findall(line):
                    if name.split(".")[0] in ROOMS | BESIDE and not OF_OTHERS.match(name):
                        yield f"{path.relative_to(ROOT)}:{number}", name


def is_there(name: str) -> bool:
    """Whether a dotted name leads to a module, or to a word in one. The package's own name may be left out."""
    parts = name.split(".")
    for at in (PACKAGE, ROOT):
        rest = list(parts)
        while rest and (at / rest[0]).is_dir():
            at /= rest.pop(0)
        if not rest:
            return True
        module = at / f"{rest[0]}.py"
        if module.exists():
            rest.pop(0)
        else:
            module = at / "__init__.py"
        if module.exists() and all(re.search(rf"\b{part}\b", module.read_text()) for part in rest):
            return True
    return False


def test_what_is_cited_is_there() -> None:
    found = list(cited())
    assert len(found) > 100
    assert [(where, name) for where, name in found if not is_there(name)] == []


@pytest.mark.parametrize("name", ["relay.hot.gone", "net.errors.Gone", "records.raw", "service.flows.flow.Flow"])
def test_what_is_not_there(name: str) -> None:
    assert not is_there(name)
