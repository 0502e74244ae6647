"""What documents tell a reader to type is there: every command of ours with its options, every make target."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.shown import console, cut_off, inline, parse

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]
ENDS = frozenset({"|", "&&", ">"})


def ours(text: str) -> Iterator[list[str]]:
    """The words of each command of ours in a document's console blocks and in backticks, wherever the program stands:
    in a virtual environment, behind ``sudo``, or in a pod."""
    for words in console(text) + inline(text):
        command = words[words.index("--") + 1 :] if words[0] == "kubectl" and "--" in words else words
        command = command[1:] if command[0] == "sudo" else command
        program = Path(command[0]).name
        if program in ("mirror", "make"):
            end = next((at for at, word in enumerate(command) if word in ENDS), len(command))
            yield [program, *command[1:end]]


def wrong(text: str) -> list[str]:
    """Commands of ours that are not there, or do not take an option; targets that the Makefile lacks."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = []
    for words in ours(text):
        if words[0] == "make":
            targets = [word for word in words[1:] if "=" not in word]
            right = all(re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE) for target in targets)
        else:
            right = _is_parsed(words)
        if not right:
            found.append(" ".join(words))
    return found


def _is_parsed(words: list[str]) -> bool:
    try:
        parse(words)
    except (click.UsageError, AssertionError):
        return False
    return True


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_exist_and_take_their_options(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert wrong(text) == []
    assert cut_off(text) == []  # without quotes, west->east writes into a file


@pytest.mark.parametrize(
    ("name", "least"), [("README.md", 20), ("docs/GUIDE.md", 20), ("docs/OPERATING.md", 40), ("docs/AUDIT.md", 2)]
)
def test_they_are_found(name: str, least: int) -> None:
    assert len(list(ours((ROOT / name).read_text(encoding="utf-8")))) >= least


SAMPLE = """
`mirror status --watch`, `make test`, and what is not ours: `kafka-topics --list`.
```console
$ sudo /opt/mirror/bin/mirror plan -c mirror.yaml | grep -E P07
$ kubectl -n mirror exec mirror-0 -- mirror status -c mirror.yaml   # a pod
$ make bench
```
"""


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("status --watch", "status --wach", "mirror status --wach"),
        ("make test", "make tests", "make tests"),
        ("mirror plan -c", "mirror plans -c", "mirror plans -c mirror.yaml"),
        ("mirror plan -c", "mirror plan -x", "mirror plan -x mirror.yaml"),
        ("-- mirror status", "-- mirror state", "mirror state -c mirror.yaml"),
        ("make bench", "make benches", "make benches"),
    ],
)
def test_a_command_that_is_not_there_is_seen(before: str, after: str, found: str) -> None:
    assert wrong(SAMPLE) == []
    assert before in SAMPLE
    assert wrong(SAMPLE.replace(before, after)) == [found]
