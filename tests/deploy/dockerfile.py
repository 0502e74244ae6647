"""deploy/docker/Dockerfile, read as far as it goes: its stages, and what each instruction says."""

import json
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
IGNORE = ROOT / ".dockerignore"


class Instruction(NamedTuple):
    """One instruction: its word, and what follows it in one line."""

    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """What follows: of the exec form, its strings; else its words."""
        if self.rest.startswith("["):
            return [str(each) for each in json.loads(self.rest)]
        return self.rest.split()

    @property
    def pairs(self) -> dict[str, str]:
        """What ENV or LABEL sets, without the quotation marks."""
        found = re.findall(r'(\S+?)=("[^"]*"|\S+)', self.rest)
        return {name: value.strip('"') for name, value in found}


def stages(text: str) -> tuple[dict[str, str], list[list[Instruction]]]:
    """Returns the arguments before the first stage with their defaults, and the instructions of each stage."""
    lines = "".join(f"{line}\n" for line in text.splitlines() if not line.lstrip().startswith("#"))
    instructions = [
        Instruction(word, " ".join(rest.split()))
        for word, _, rest in (line.partition(" ") for line in lines.replace("\\\n", " ").splitlines() if line.strip())
    ]
    starts = [at for at, each in enumerate(instructions) if each.word == "FROM"]
    arguments = dict(each.rest.split("=", 1) for each in instructions[: starts[0]])
    return arguments, [instructions[at:end] for at, end in zip(starts, [*starts[1:], None], strict=True)]


def named(found: list[list[Instruction]], name: str) -> list[Instruction]:
    """Returns the stage of this name."""
    (stage,) = [each for each in found if each[0].words[1:] == ["AS", name]]
    return stage


def of(stage: list[Instruction], word: str) -> list[Instruction]:
    """Returns the instructions of this word."""
    return [each for each in stage if each.word == word]


def only(stage: list[Instruction], word: str) -> Instruction:
    """Returns the one instruction of this word."""
    (found,) = of(stage, word)
    return found


def ignoring() -> tuple[set[str], set[str]]:
    """Returns what .dockerignore admits of the repository, and the patterns for which it admits nothing below that."""
    lines = [line for line in IGNORE.read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*", "everything is ignored that is not admitted"
    admitted = {line[1:] for line in lines if line.startswith("!")}
    below = {line.removeprefix("**/") for line in lines if line.startswith("**/")}
    assert len(lines) == 1 + len(admitted) + len(below), "no other kind of pattern is understood here"
    return admitted, below
