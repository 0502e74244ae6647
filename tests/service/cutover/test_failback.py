"""What has to be true before the way back is prepared."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.service.cutover.adopting import Adopting, Adoption
from mirror.service.cutover.certificate import SKIPPED, Audit
from mirror.service.cutover.command import Refused
from mirror.service.cutover.configuration import NotConfigured
from mirror.service.cutover.failback import Certified, check_at_rest, check_certificate, check_logs, prepare
from mirror.service.cutover.obstacles import Obstacle
from mirror.service.cutover.world import Found
from mirror.service.offsets.ends import Missing, PartitionEnds
from tests.service.cutover.worlds import SUBJECT, row

ROWS = {each.key: each for each in (row(0), row(1))}
GIVEN = Certified(path=Path("c.json"), subject=SUBJECT, rows=ROWS, audit=Audit("identical", 0))


def test_the_certificate() -> None:
    """It has to be of this flow, and to prove something; or somebody takes it on trust."""
    check_certificate(GIVEN, SUBJECT, skip_audit=False)
    with pytest.raises(Refused, match=r"another cutover \(destination_cluster EAST, and here NORTH\)"):
        check_certificate(GIVEN, replace(SUBJECT, destination_cluster="NORTH"), skip_audit=True)
    unproven = replace(GIVEN, audit=Audit(SKIPPED))
    with pytest.raises(Refused, match="the audit was skipped"):
        check_certificate(unproven, SUBJECT, skip_audit=False)
    check_certificate(unproven, SUBJECT, skip_audit=True)


class Written(Adopting):
    """What is written down, without a cluster."""

    def __init__(self) -> None:
        self.written: list[str] = []

    async def plan(self, name: str, rows: object, begun: object) -> Adoption:
        return Adoption(flow_id=f"{name}.2", pins=[], loops=[], begun=[])

    async def write(self, adoption: Adoption) -> None:
        self.written.append(adoption.flow_id)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_the_configuration_comes_first(dry_run: bool) -> None:
    """If it cannot be written, nothing is written down at the former source; a dry run says so as well."""

    def refuse(_: str) -> Callable[[], str]:
        raise NotConfigured("it is there")

    def configure(flow_id: str) -> Callable[[], str]:
        told.append(f"prepared {flow_id}")
        return lambda: "x.yaml"

    adopting, told = Written(), list[str]()
    with pytest.raises(NotConfigured, match="it is there"):
        await prepare(adopting, "b->a", GIVEN, configure=refuse, tell=told.append, dry_run=dry_run)
    assert adopting.written == []
    await prepare(adopting, "b->a", GIVEN, configure=configure, tell=told.append, dry_run=dry_run)
    assert adopting.written == ([] if dry_run else ["b->a.2"])
    assert "prepared b->a.2" in told
    assert ("configuration: x.yaml" in told) != dry_run


def test_the_logs() -> None:
    """The former source as it was; the former destination with that, and what came since."""
    check_logs(GIVEN.rows, [row(0, copied=50), row(1, copied=10)])


def test_ids_that_appear() -> None:
    """A cluster that gave its topics no ids was upgraded in between, or a broker tells none."""
    without = {each.key: each for each in (row(0, source_id=None), row(1))}
    check_logs(without, [row(0), row(1, destination_id=None)])


def test_what_was_copied_back_before() -> None:
    """By the flow back itself, which has begun already."""
    check_logs(GIVEN.rows, [row(0, end=15, copied=50), row(1)], {("orders", 0)})
    with pytest.raises(Refused, match="orders-1: the former source ended at 10, and ends at 15"):
        check_logs(GIVEN.rows, [row(0), row(1, end=15, copied=50)], {("orders", 0)})
    with pytest.raises(Refused, match="it has lost records"):
        check_logs(GIVEN.rows, [row(0, end=9), row(1)], {("orders", 0)})


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (row(1, end=11), "ended at 10, and ends at 11: somebody has written there since"),
        (row(1, end=9), "ended at 10, and ends at 9: it has lost records"),
        (row(1, source_stable=8), "ends at 10 and is stable up to 8"),
        (row(1, copied=9), "the former destination ends at 9, before 10"),
        (row(1, copied=50, destination_start=11), "begins at 11: it has deleted records from 10 on"),
        (row(1, source_id="c" * 32), "deleted and created again"),
        (row(1, destination_id="c" * 32), "deleted and created again"),
        (row(1, why="no leader"), "no leader"),
        (row(2), "orders-1 is gone\n  orders-2 was not cut over"),
    ],
)
def test_logs_that_are_not_as_certified(now: PartitionEnds, told: str) -> None:
    with pytest.raises(Refused) as caught:
        check_logs(GIVEN.rows, [row(0), now])
    assert told in str(caught.value)
    assert "orders-0" not in str(caught.value)


def test_a_topic_that_is_not_seen_any_more() -> None:
    """It need not be gone."""
    with pytest.raises(Refused, match=r"orders-1 is not seen: it is hidden\n"):
        check_logs({("orders", 1): row(1)}, [], missing=[Missing("orders", "it is hidden")])


def test_the_flow_is_at_rest() -> None:
    """All of its partitions; if no mirror answers, others may still run it."""
    paused = [Obstacle(topic="orders", partition=0, reason="paused")]
    found = Found(rows=[row(0), row(1)], missing=[], not_covered=[], obstacles=paused, running="")
    with pytest.raises(Refused, match="still copies orders-1,"):
        check_at_rest(found, "west->east")
    assert "on another host" in check_at_rest(replace(found, running="nobody answers"), "west->east")
    assert check_at_rest(replace(found, rows=[row(0)]), "west->east") == ""
