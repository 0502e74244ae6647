"""What documents refer to is there: the tests and files that BROKERS.md names, every link, every citation in the code.

A reference to a section is one to a heading, by the anchor that GitHub gives it.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BROKERS = ROOT / "docs" / "BROKERS.md"
DESIGN = ROOT / "docs" / "DESIGN.md"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]
CODE = sorted(
    path
    for part in ("mirror", "bench", "chaos", "lab", "tests")
    for path in (ROOT / part).rglob("*")
    if path.suffix in (".py", ".c", ".h")
)

NAMED = re.compile(r"(?<![\w./-])((?:mirror|tests|chaos|bench|lab|docs|scripts)/[\w./-]*\w)(?:::([\w.-]+))?")
"""A path, and a test or scenario in it."""
LINK = re.compile(r"\]\(([^()\s]+)\)")
CITATION = re.compile(r"\bdocs/[\w./-]*?\w\.md(?:#[\w-]+)?")
ENTRY = re.compile(r"^### (.+)\n((?:(?!^#).*\n?)*)", re.MULTILINE)
FACTS = 100
"""At least so many: an empty file would pass."""
UNSHOWN = "not shown by a test here"


# Names in files.


@cache
def names_in(path: Path) -> frozenset[str]:
    """The tests that a file has, without parameters; of a file of chaos, its scenarios."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    tests = {function.name for function in functions if function.name.startswith("test_")}
    return frozenset(tests | {name for function in functions for name in _scenarios(function)})


def _scenarios(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "scenario":
            yield str(ast.literal_eval(decorator.args[0]))


def not_there(text: str) -> list[str]:
    """Paths in a text that are not there, and tests or scenarios that their file does not have."""
    missing = []
    for found in NAMED.finditer(text):
        path, name = found.groups()
        if not (ROOT / path).exists() or (name and name not in names_in(ROOT / path)):
            missing.append(found[0])
    return missing


# Names in DESIGN.md: they are shorter.

SHORT = re.compile(r"`(?:([\w/]+\.py)(?:::)?)?(\w+(?:\.\w+)*)?`")
"""In backticks: a file, whose first folders may be left out, and a name in it; or a name alone."""


@cache
def defined() -> dict[Path, frozenset[str]]:
    """File -> the classes and functions in it, and ``Class.member`` with the attributes that the class assigns."""
    return {path: frozenset(_defined_in(path)) for path in CODE if path.suffix == ".py"}


def _defined_in(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            yield from (f"{node.name}.{member}" for member in _members(node))


def _members(node: ast.ClassDef) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part.name
        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            yield part.attr
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id


def unknown_names(text: str) -> list[str]:
    """Files that no path ends with, names that the file before them does not have, and members of classes of ours
    that the class does not have."""
    every = defined()
    classes = {name for names in every.values() for name in names if "." not in name and name[0].isupper()}
    wrong = []
    for found in SHORT.finditer(outside_code(text)):
        file, name = found.groups()
        if file:
            files = [path for path in every if f"/{path.relative_to(ROOT)}".endswith(f"/{file}")]
            right = bool(files) and (not name or any(name in every[path] for path in files))
        else:
            right = not name or name.partition(".")[0] not in classes or any(name in names for names in every.values())
        if not right:
            wrong.append(found[0].strip("`"))
    return wrong


# Sections and links.


def outside_code(text: str) -> str:
    """The document without its code blocks, where # and ]( mean something else."""
    return re.sub(r"^(```|~~~).*?^\1\s*?$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(text: str) -> set[str]:
    """Those that GitHub gives a document's headings: a second one of the same text gets a number."""
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", outside_code(text), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors


def resolves(document: Path, target: str) -> bool:
    """Whether a file is there, and its section, if one is named. ``target``: as seen from the document."""
    file, _, anchor = target.partition("#")
    path = document.parent / file if file else document
    if not path.exists():
        return False
    return not anchor or anchor in anchors_of(path.read_text(encoding="utf-8"))


def broken_links(document: Path, text: str) -> list[str]:
    """Targets of its relative links that do not resolve."""
    targets = LINK.findall(outside_code(text))
    return [each for each in targets if not re.match(r"\w+:", each) and not resolves(document, each)]


def broken_citations(text: str) -> list[str]:
    """Documents that source code names, and their sections, that do not resolve."""
    return [each for each in CITATION.findall(text) if not resolves(ROOT / "anywhere", each)]


# The facts about brokers.


def incomplete(text: str) -> list[str]:
    """Entries without versions, code, or a word on what shows them; or whose versions are not what shows them."""
    wrong = []
    for heading, body in ENTRY.findall(text):
        lines = dict(re.findall(r"^- ([\w ]+): ((?:.+\n?)(?:  .+\n?)*)", body, re.MULTILINE))
        shown = " ".join(lines.get("Shown by", "").split())
        unseen = lines.get("Seen on", "").strip() == "no version here"
        named = any(path.startswith(("tests/", "chaos/")) for path, _ in NAMED.findall(shown))
        if (
            list(lines) != ["Seen on", "Code", "Shown by"]
            or "mirror/" not in lines["Code"]
            or unseen is not shown.startswith(UNSHOWN)
            or not (unseen or named)
        ):
            wrong.append(heading)
    return wrong


def test_what_brokers_md_names_is_there() -> None:
    text = BROKERS.read_text(encoding="utf-8")
    assert not_there(text) == []
    assert incomplete(text) == []
    assert len(ENTRY.findall(text)) >= FACTS


def test_what_mirrormaker2_md_names_is_there() -> None:
    """Each scenario names a test, or says why there is none."""
    text = (ROOT / "docs" / "results" / "MIRRORMAKER2.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!scenario|:--).*$", text, re.MULTILINE)
    assert len(rows) > 20
    assert not_there("\n".join(re.findall(r"`tests/[^`]+`", text))) == []
    without = [row for row in rows if "`tests/" not in row]
    assert all(re.search(r"\| (Does not apply: |Not there: |No test of its own yet)", row) for row in without)


def test_what_design_md_names_is_there() -> None:
    text = DESIGN.read_text(encoding="utf-8")
    assert not_there("\n".join(re.findall(r"`tests/[^`]+`", text))) == []
    assert unknown_names(text) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    assert broken_links(document, document.read_text(encoding="utf-8")) == []


def test_citations_in_the_code_resolve() -> None:
    assert len(CODE) > 100
    found = {str(path.relative_to(ROOT)): broken_citations(path.read_text(encoding="utf-8")) for path in CODE}
    assert {path: broken for path, broken in found.items() if broken} == {}


# Each of them can fail.


@pytest.mark.parametrize(
    "named",
    [
        "tests/nowhere.py",
        "mirror/relay/nowhere.py",
        "tests/project/test_documents.py::test_nothing",
        "tests/project/test_documents.py::not_there",
        "tests/vectors/captured/nothing.bin",
        "chaos/scenarios/brokers.py::nothing",
    ],
)
def test_a_name_that_is_not_there_is_seen(named: str) -> None:
    there = "`tests/project/test_documents.py::test_links_resolve`, `chaos/scenarios/brokers.py::quota`"
    assert not_there(there) == []
    assert not_there(f"{there}: see `{named}`.") == [named]


@pytest.mark.parametrize(
    "named", ["relay/nowhere.py", "relay/sink.py::Lane.nothing", "sink.py::nothing", "Lane.nothing"]
)
def test_a_short_name_that_is_not_there_is_seen(named: str) -> None:
    there = "`relay/sink.py`, `sink.py::Lane._refused`, `Queue.acknowledged`, `Lane`, `asyncio.sleep`, `kafka.protocol`"
    assert unknown_names(there) == []
    assert unknown_names(f"{there}: see `{named}`.") == [named]


COMPLETE = """### A fact

It is so.

- Seen on: 4.3.0
- Code: `mirror/relay/sink.py`
- Shown by: `tests/net/logs/test_log.py::test_produce`, and
  more
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- Seen on: 4.3.0\n", ""),
        ("- Code: `mirror/relay/sink.py`\n", ""),
        ("`mirror/relay/sink.py`", "everywhere"),
        ("`tests/net/logs/test_log.py::test_produce`", "experience"),
        ("`tests/net/logs/test_log.py::test_produce`", UNSHOWN),
        ("4.3.0", "no version here"),
    ],
)
def test_an_incomplete_fact_is_seen(before: str, after: str) -> None:
    assert incomplete(COMPLETE) == []
    assert incomplete(COMPLETE.replace("4.3.0", "no version here").replace("`tests/net", f"{UNSHOWN} `tests/net")) == []
    assert incomplete(COMPLETE.replace(before, after)) == ["A fact"]


SAMPLE = """# A partition's *life*, and `more`

```console
# no-heading
[x](nowhere.md)
```
## Twice
## Twice
## A [link](https://example.org) of_all 2^31 - 1 kinds

[a](#a-partitions-life-and-more) [b](#twice) [c](#twice-1) [d](#a-link-of_all-231---1-kinds) [e](https://example.org/x)
"""


@pytest.mark.parametrize("target", ["#no-heading", "#twice-2", "#Twice", "nowhere.md", "README.md#nowhere"])
def test_a_broken_link_is_seen(target: str, tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text(SAMPLE, encoding="utf-8")
    assert broken_links(document, SAMPLE) == []
    assert broken_links(document, f"{SAMPLE}\n![x]({target})") == [target]


@pytest.mark.parametrize("document", ["NOWHERE.md", "DESIGN.md#nowhere", "README.md", "results/NOWHERE.md"])
def test_a_broken_citation_is_seen(document: str) -> None:
    cited = f"docs/{document}"
    assert broken_citations("# the idea: docs/DESIGN.md#1-the-idea, docs/DESIGN.md.\n") == []
    assert broken_citations(f"/* See {cited}. */") == [cited]
