"""A step of a partition as text, for people and for programs."""

import json

import pytest
from ruamel.yaml import YAML

from mirror.cli.tracing.lines import as_line, as_text

AT_MS = 1_700_000_000_123
SENT = {"at_ms": AT_MS, "step": "produce", "broker": 1, "offset": 1234, "records": 10, "worker": 2}
EVENT = {"at_ms": AT_MS, "step": "event", "event": "resync", "cause": "x", "detail": "a = b", "worker": 12}
LONG = {"at_ms": AT_MS, "step": "waits", "reason": "both logs are looked at: cluster source, broker 1, cluster there"}
BARE = {"at_ms": AT_MS, "step": "produced", "believed": True, "message": "", "error": None}


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (SENT, "22:13:20.123Z w2 produce     broker=1 offset=1234 records=10"),
        (EVENT, '22:13:20.123Z w12resync      cause=x detail="a = b"'),
        (BARE, "22:13:20.123Z    produced    believed=true"),
    ],
)
def test_a_line(step: dict[str, object], line: str) -> None:
    """When, by which worker, and what; empty values are left out, and what is long or has spaces is quoted."""
    assert as_line(step) == line


def test_the_width_of_a_terminal() -> None:
    """What is too long goes on beneath itself; nothing is cut off, and `wide` has it on one line."""
    shown = as_text(LONG, "table", width=60).splitlines()
    assert len(shown) > 1
    assert all(len(line) <= 60 for line in shown)
    assert all(line.startswith(" " * 28) for line in shown[1:])
    assert " ".join(" ".join(shown).split()) == " ".join(as_line(LONG).split())
    assert as_text(LONG, "wide", width=60) == as_text(LONG, "table", width=0) == as_line(LONG)


def test_for_programs() -> None:
    """Each is a line of JSON; all of them are a list in YAML."""
    assert [json.loads(as_text(each, "json", width=0)) for each in (SENT, EVENT)] == [SENT, EVENT]
    assert YAML(typ="safe", pure=True).load("\n".join(as_text(each, "yaml", width=0) for each in (SENT, EVENT))) == [
        SENT, EVENT,
    ]  # fmt: skip
