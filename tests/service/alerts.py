"""The alerts that are shipped, evaluated against what ``/metrics`` answers: comparisons of one metric with a number."""

import operator
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

RULES = Path(__file__).resolve().parent.parent.parent / "configs" / "alerts.yaml"
_SHAPE = re.compile(
    r"(?P<age>time\(\) - )?(?P<name>\w+)(?:\{(?P<label>\w+)=\"(?P<value>\w+)\"\})? (?P<sign>==|>|<) (?P<than>\d+)"
)
_SIGNS: dict[str, Callable[[float, float], bool]] = {"==": operator.eq, ">": operator.gt, "<": operator.lt}

Samples = dict[str, list[tuple[dict[str, str], float]]]
"""By name: labels and value of each."""


class Rule(NamedTuple):
    """One alert; ``shape`` is its expression."""

    alert: str
    shape: "re.Match[str]"


def rules() -> list[Rule]:
    """All that are shipped; an expression that is no such comparison fails."""
    found = []
    for group in YAML(typ="safe").load(RULES)["groups"]:
        for rule in group["rules"]:
            shape = _SHAPE.fullmatch(rule["expr"])
            assert shape is not None, f"{rule['alert']}: {rule['expr']} is more than these tests can evaluate"
            found.append(Rule(rule["alert"], shape))
    return found


def samples(text: str) -> Samples:
    """What a scrape gave."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        found.setdefault(family.name, [])
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def firing(scraped: Samples, *, at_s: float | None = None) -> set[str]:
    """The alerts whose expression holds for any sample; ``for`` is not waited for."""
    now = time.time() if at_s is None else at_s
    found: set[str] = set()
    for alert, shape in rules():
        for labels, value in scraped.get(shape["name"], []):
            if shape["label"] is None or labels.get(shape["label"]) == shape["value"]:
                seen = now - value if shape["age"] else value
                if _SIGNS[shape["sign"]](seen, float(shape["than"])):
                    found.add(alert)
    return found
