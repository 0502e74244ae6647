"""Every kind of fault on every kind of topic, in the logs of real brokers: each is found, named and located,
and nothing else is; and nothing is found in copies that are true."""

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from mirror.audit.model.places import Side
from mirror.sandbox import SandboxCluster
from tests.audit.faults.grid import Grid, Seen, in_order
from tests.audit.faults.healthy import HEALTHY, Healthy
from tests.audit.faults.kinds import Fault, Shape, Told, of_shapes
from tests.audit.faults.old import OLD
from tests.audit.faults.random import LENGTH, Due, grown, unlike

pytestmark = [pytest.mark.broker, pytest.mark.spark]
SHAPES = [shape for shape in Shape if shape not in OLD]
FAULTS = of_shapes(*SHAPES)
HEALTHY_COPIES = [one for one in HEALTHY if one.shape in SHAPES]


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 60
    assert len(HEALTHY_COPIES) >= 20
    assert {fault.shape for fault in FAULTS} == {one.shape for one in HEALTHY_COPIES} == set(SHAPES)


TOLD_WRONGLY = (40, 80, 103, 110)
"""Seeds of which more was told than is wrong: a stranger's marker in a hole was taken for one that pushes on what is
behind it; markers that touch were looked for at one shift, where the batch between their holes was lost; holes of both
sides were taken for each other where one side lies so far that they meet by chance."""


class Laid(NamedTuple):
    """What is due, by kind of fault or of healthy copy; what is due of each seed; what was said of each topic."""

    told: dict[str, list[Told]]
    prefix: dict[str, str]
    due: dict[str, list[Due]]
    seen: dict[str, Seen]


@pytest.fixture(scope="module")
def laid(source_cluster: SandboxCluster, destination_cluster: SandboxCluster, spark: SparkSession) -> Laid:
    """The copies of both tests: the brokers start once with what they hold, and are audited together. No two topics
    have a record in common."""
    grid, name = Grid({Side.SOURCE: source_cluster, Side.DESTINATION: destination_cluster}), uuid.uuid4().hex[:12]
    prefix = {shape: f"t-{name}-{at}" for at, shape in enumerate(["other", *_shapes()])}
    grid.write({prefix[name]: shape for name, shape in {"other": Shape.PLAIN, **_shapes()}.items()})
    told = spoiled(grid, prefix, FAULTS, HEALTHY_COPIES)
    grid.length = LENGTH
    due = grown(grid, {f"t-{name}-seed-{seed}": seed for seed in TOLD_WRONGLY})
    grid.lay()
    return Laid(told, prefix, due, grid.audit(spark))


def test_the_grid(laid: Laid) -> None:
    """
    1. A topic for each kind of fault and each kind of healthy copy, written by librdkafka; a true copy of each, with
       offsets of the source's or of its own.
    2. Each copy is spoiled in its own way, or has happen to it what may happen.
    3. One audit for each way to keep offsets.
    """
    check({name: (laid.seen[laid.prefix[name]], told) for name, told in laid.told.items()})


def test_random_faults(laid: Laid) -> None:
    """Several in each copy: each is found, and nothing else. `make audit-faults` draws thousands."""
    for topic, wanted in laid.due.items():
        assert not unlike(laid.seen[topic].findings, wanted), [*map(str, laid.seen[topic].findings)]


def _shapes() -> dict[str, Shape]:
    found = [(fault.name, fault.shape) for fault in FAULTS] + [
        (healthy.name, healthy.shape) for healthy in HEALTHY_COPIES
    ]
    assert len(dict(found)) == len(found), "two kinds have one name"
    return dict(found)


def spoiled(
    grid: Grid, prefix: Mapping[str, str], faults: Iterable[Fault], healthy: Iterable[Healthy]
) -> dict[str, list[Told]]:
    """What is due for each copy, by name, once each was changed in its own way. ``prefix``: of their topics."""
    others = [unit.data for unit in grid.copies[prefix["other"]].source]
    wanted: dict[str, list[Told]] = {"other": []}
    for fault in faults:
        copy = grid.copies[prefix[fault.name]]
        copy.others = others
        wanted[fault.name] = in_order(fault.spoil(copy))
        assert wanted[fault.name], fault.name
    for one in healthy:
        one.change(grid.copies[prefix[one.name]])
        wanted[one.name] = []
    return wanted


def check(told: Mapping[str, tuple[Seen, list[Told]]]) -> None:
    """What was said of each copy is what is due."""
    wrong = {name: each for name, each in told.items() if each[0].told != each[1]}
    assert not wrong, "\n".join(_shown(name, *each) for name, each in wrong.items())


def _shown(name: str, seen: Seen, wanted: list[Told]) -> str:
    lines = [f"{name}:", *(f"  due    {_told(one)}" for one in wanted)]
    lines += [f"  found  {_told(Told(one.kind, one.source, one.destination))}: {one.detail}" for one in seen.findings]
    return "\n".join(lines)


def _told(one: Told) -> str:
    source, destination = (span and (span.start, span.end) for span in one[1:])
    return f"{one.kind.value}, source {source}, destination {destination}"
