"""The steps of ``mirror trace`` as text. Pure."""

import json
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mirror.cli.formats import yaml_text

_LEAST_WIDTH = 48
_INDENT = " " * 28
_APART = frozenset({"at_ms", "step", "worker", "event"})


def as_text(step: Mapping[str, Any], shape: str, *, width: int) -> str:
    """Returns a step in one of the formats of ``--format``. In JSON, all steps together are JSON lines; in YAML, a
    list.

    Args:
        step: the step, as the mirror reports it.
        shape: table, wide, json or yaml.
        width: column at which the lines of a table are wrapped; 0: they are not wrapped.
    """
    if shape == "json":
        return json.dumps(step)
    if shape == "yaml":
        return yaml_text([step]).rstrip("\n")
    line = as_line(step)
    if shape == "wide" or not width:
        return line
    return textwrap.fill(
        line,
        max(width, _LEAST_WIDTH),
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def as_line(step: Mapping[str, Any]) -> str:
    """Returns a step as one line: time of day (UTC), worker, name of the step, and its fields that are not empty."""
    at = datetime.fromtimestamp(step["at_ms"] / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    who = f"w{step['worker']}" if "worker" in step else ""
    name = step.get("event", step["step"])
    told = [
        f"{field}={_value(value)}" for field, value in step.items() if field not in _APART and value not in ("", None)
    ]
    return f"{at}Z {who:<3}{name:<12}{' '.join(told)}".rstrip()


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return json.dumps(text, ensure_ascii=False) if any(each in text for each in ' "=') else text
