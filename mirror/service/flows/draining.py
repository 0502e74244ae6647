"""What a service does while it stops: for the log, and for ``mirror stop``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from mirror.service.flows.flow import RunningFlow
from mirror.service.log import logs
from mirror.service.telemetry.accounts import Totals

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What came of a stop.

    Attributes:
        drained: all that was sent is acknowledged.
        pending: batches that were sent and are not acknowledged.
        records: records that were written at the destination since the workers' last reports before the stop.
        batches: the batches that they are in.
        bytes: the size of these.
        partitions: number of partitions that are copied here.
        committed: in how many of them the group's offset at the source was the position before the group was left. What
            was not, is committed while it is left, of which nothing is told.
        halted: how many of them are halted.
    """

    drained: bool
    pending: int
    records: int
    batches: int
    bytes: int
    partitions: int
    committed: int
    halted: int

    def log(self, log: FilteringBoundLogger) -> None:
        """Logs it: the service's last line."""
        log.info(
            logs.STOPPED,
            drained=self.drained,
            pending=self.pending,
            halted=self.halted,
            records=self.records,
            batches=self.batches,
            bytes=self.bytes,
            partitions=self.partitions,
            committed=self.committed,
        )


class Draining:
    """One stop: from the workers' last reports before they were told of it to their last ones of all."""

    def __init__(self, flows: Collection[RunningFlow]) -> None:
        self._before = _replicated(flows)

    def over(self, flows: Collection[RunningFlow], *, drained: bool) -> Drained:
        """Returns what came of it. ``flows``: after every worker has ended. ``drained``: each has ended as told."""
        written = _replicated(flows)
        rows = [row for flow in flows for _, row in flow.fleet.rows]
        return Drained(
            drained=drained and all(flow.drained for flow in flows),
            pending=sum(flow.pending for flow in flows),
            records=written.records - self._before.records,
            batches=written.batches - self._before.batches,
            bytes=written.bytes - self._before.bytes,
            partitions=len(rows),
            committed=sum(row.committed == row.position for row in rows),
            halted=sum(bool(row.reason) for row in rows),
        )


def _replicated(flows: Collection[RunningFlow]) -> Totals:
    return reduce(Totals.plus, (flow.fleet.replicated for flow in flows), Totals())
