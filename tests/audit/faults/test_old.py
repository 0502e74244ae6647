"""The grid of faults in copies of topics in formats from before Kafka 0.11."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mirror.audit.judge.changed.old_formats import OLD as WHY
from mirror.audit.model import Side
from mirror.audit.prepare import plan
from mirror.sandbox import Cluster
from tests.audit.faults.grid import Grid, in_order
from tests.audit.faults.healthy import HEALTHY
from tests.audit.faults.kinds import Shape, Told, of_shapes
from tests.audit.faults.old import BATCHES, OLD, VERSION, sizes
from tests.audit.faults.test_grid import check
from tests.patience import PATIENT

pytestmark = [pytest.mark.broker, pytest.mark.spark]
FAULTS = of_shapes(*OLD)
HEALTHY_COPIES = [one for one in HEALTHY if one.shape in OLD]
MESSAGES = sum(size if codec == "none" else 1 for codec, size in zip(BATCHES, sizes(), strict=False))
RECORDS = sum(sizes()[: len(BATCHES)])


@pytest.fixture(scope="module")
def old() -> Iterator[Cluster]:
    """The last Kafka but one that writes old formats where it is told to."""
    with Cluster(name="old", version=VERSION, properties=PATIENT, quick=True, heap_mb=512) as cluster:
        yield cluster


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 40
    assert len(HEALTHY_COPIES) >= 10


def test_the_grid(
    old: Cluster,
    destination_cluster: Cluster,
    spark: SparkSession,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    1. A topic for each kind of fault and of healthy copy, in magic 1 and magic 0 in turn, with batches of today behind.
    2. Each copy is spoiled in its own way. One audit says all that is due, and nothing else.
    3. Of the healthy ones, all records in old formats are counted.
    4. The same in many small ranges, whose borders are anywhere: inside of wrappers, and of what was gathered.
    """
    names = {fault.name: fault.shape for fault in FAULTS} | {one.name: one.shape for one in HEALTHY_COPIES}
    grid = Grid({Side.SOURCE: old, Side.DESTINATION: destination_cluster})
    prefix = {name: f"{topic_name}-{at}" for at, name in enumerate(["other", *names])}
    grid.write({prefix[name]: shape for name, shape in {"other": Shape.OLD, **names}.items()})
    others = [unit.data for unit in grid.copies[prefix["other"]].source]
    wanted: dict[str, list[Told]] = {"other": []}
    for fault in FAULTS:
        copy = grid.copies[prefix[fault.name]]
        copy.others = others
        wanted[fault.name] = in_order(fault.spoil(copy))
        assert wanted[fault.name], fault.name
    for healthy in HEALTHY_COPIES:
        healthy.change(grid.copies[prefix[healthy.name]])
        wanted[healthy.name] = []
    grid.lay()
    for _ in range(2):
        seen = grid.audit(spark)
        check({name: (seen[prefix[name]], told) for name, told in wanted.items()})
        for name, told in wanted.items():
            copy = grid.copies[prefix[name]]
            if not told and not copy.trimmed and not copy.meanwhile:
                (one,) = seen[prefix[name]].reencoded
                assert (one.batches, one.records, one.detail) == (MESSAGES, RECORDS, WHY), name
        monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 1)
        monkeypatch.setattr(plan, "TASK_BYTES", 4_000)
        monkeypatch.setattr(plan, "CHUNK_BYTES", 1_500)
