"""The names of the metrics that the mirror exports, and those that an expression names."""

import re
from functools import cache

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.service.telemetry.test_exposition import exposed

METRIC = re.compile(r"\b(?:mirror|process|python)_\w+|\bup\b")


@cache
def exposition() -> str:
    """The text of /metrics, with a sample of every family."""
    with pytest.MonkeyPatch.context() as patch:
        return exposed(patch)


@cache
def exported() -> frozenset[str]:
    """The names of all samples."""
    return frozenset(
        sample.name for family in text_string_to_metric_families(exposition()) for sample in family.samples
    )


def names_in(expression: str) -> set[str]:
    """The metrics that an expression of PromQL names; what it quotes is none."""
    return set(METRIC.findall(re.sub(r'"[^"]*"', "", expression)))
