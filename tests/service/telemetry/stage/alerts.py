"""The alerts that are shipped, evaluated against what ``/metrics`` answers: comparisons of one metric with a number.

The others need what Prometheus remembers, or several metrics: promtool evaluates them (``tests/prometheus``).
"""

import operator
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

RULES = Path(__file__).resolve().parents[4] / "mirror" / "configs" / "alerts.yaml"
_SHAPE = re.compile(
    r"(?P<age>time\(\) - )?(?:max by \((?P<by>[\w, ]+)\) \()?(?P<name>\w+)(?:\{(?P<label>\w+)=\"(?P<value>\w+)\"\})?"
    r"(?(by)\)) (?P<sign>==|>|<) (?P<than>-?\d+)"
)
BEYOND = {
    *("MirrorAbsent", "MirrorAuthErrors", "MirrorWorkerCrashLooping", "MirrorPartitionStalled", "MirrorRetentionRisk"),
    *("MirrorCpuSaturated", "MirrorFileDescriptors", "MirrorAuditStale"),
}
"""The others."""
_SIGNS: dict[str, Callable[[float, float], bool]] = {"==": operator.eq, ">": operator.gt, "<": operator.lt}
_UNITS_S = {"s": 1, "m": 60, "h": 3600}

Samples = dict[str, list[tuple[dict[str, str], float]]]
"""By name: labels and value of each."""
Labels = frozenset[tuple[str, str]]


class Rule(NamedTuple):
    """One alert; ``shape`` is its expression."""

    alert: str
    shape: "re.Match[str]"
    for_s: float
    keep_firing_for_s: float

    def held(self, scraped: Samples, at_s: float) -> set[Labels]:
        """The label sets for which the expression holds."""
        by, found = self.shape["by"], set[Labels]()
        for labels, value in scraped.get(self.shape["name"], []):
            if self.shape["label"] is None or labels.get(self.shape["label"]) == self.shape["value"]:
                seen = at_s - value if self.shape["age"] else value
                if _SIGNS[self.shape["sign"]](seen, float(self.shape["than"])):
                    kept = labels.keys() if by is None else set(by.split(", "))
                    found.add(frozenset((name, labels[name]) for name in kept & labels.keys()))
        return found


def _duration_s(rule: dict[str, Any], name: str) -> float:
    text = rule.get(name, "0s")
    return float(text[:-1]) * _UNITS_S[text[-1]]


def rules() -> list[Rule]:
    """All but those of ``BEYOND``; another expression that is no such comparison fails."""
    found = []
    for group in YAML(typ="safe").load(RULES)["groups"]:
        for rule in group["rules"]:
            if rule["alert"] in BEYOND:
                continue
            shape = _SHAPE.fullmatch(rule["expr"])
            assert shape is not None, f"{rule['alert']}: {rule['expr']} is more than these tests can evaluate"
            found.append(Rule(rule["alert"], shape, _duration_s(rule, "for"), _duration_s(rule, "keep_firing_for")))
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
    return {rule.alert for rule in rules() if rule.held(scraped, now)}


def pages(rule: Rule, scrapes: Iterable[tuple[float, Samples]]) -> Counter[Labels]:
    """How often the alert begins to fire, as Prometheus has it: held for ``for``, and not over while it is kept firing.

    ``scrapes``: each with its time, in order; of all instances together.
    """
    pending: dict[Labels, float] = {}
    kept: dict[Labels, float] = {}
    """Those that fire, with when they last held."""
    found: Counter[Labels] = Counter()
    for at_s, scraped in scrapes:
        held = rule.held(scraped, at_s)
        pending = {labels: pending.get(labels, at_s) for labels in held}
        kept = {
            labels: at_s if labels in held else last
            for labels, last in kept.items()
            if labels in held or at_s - last < rule.keep_firing_for_s
        }
        for labels, since in pending.items():
            if labels not in kept and at_s - since >= rule.for_s:
                kept[labels] = at_s
                found[labels] += 1
    return found
