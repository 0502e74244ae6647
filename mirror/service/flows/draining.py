"""Counts what is still copied while a service stops: for the log, and for ``mirror stop``."""

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
    """The result of a stop.

    Attributes:
        drained: True if everything that was sent is acknowledged.
        pending: number of batches that were sent and are not acknowledged.
        records: number of records that were written at the destination since the workers' last reports before the stop.
        batches: number of batches of these records.
        bytes: size of these batches.
        partitions: number of partitions that workers here have.
        committed: number of these partitions whose committed offset at the source equalled the position before the
            workers left the group. For others, the offset is committed while they leave, which is not reported.
        halted: number of these partitions that are halted.
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
        """Logs the result: the last line of the service."""
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
    """Measures one stop: from the workers' last reports before it to their very last ones."""

    def __init__(self, flows: Collection[RunningFlow]) -> None:
        self._before = _replicated(flows)

    def over(self, flows: Collection[RunningFlow], *, drained: bool) -> Drained:
        """Returns the result; to be called after every worker has ended. ``drained``: True if each worker has ended as
        requested."""
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
