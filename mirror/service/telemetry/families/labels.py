"""The labels that metric families share, and their values for each flow."""

from collections.abc import Sequence

from mirror.service.telemetry.fleet import Fleet

OF_FLOW = ["source", "target"]
OF_TOPIC = [*OF_FLOW, "topic"]
OF_PARTITION = [*OF_TOPIC, "partition"]

Labelled = Sequence[tuple[Fleet, list[str]]]
"""Flows, each with the values of ``OF_FLOW``."""


def flow_labels(fleet: Fleet) -> list[str]:
    """Returns the values of ``OF_FLOW``."""
    here, _, there = fleet.flow.partition("->")
    return [here, there]
