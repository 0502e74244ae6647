"""The markers in a log as a second witness of what was aborted, besides the broker's list. Pure.

The list comes with each answer and is complete for it, but what it lacks (a transaction index that is damaged or gone)
would make aborted data look due. A transaction that is not in the list and ends with an abort marker, however far
behind its data, is a contradiction: answers of a range share one witness, and the ranges of a partition are chained.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mirror.audit.errors import AuditError
from mirror.records.transactions import ABORT, COMMIT

REMEDY = "check the source's log with kafka-dump-log; its transaction index may be damaged"


def contradiction(where: str, offset: int, kind: int, producer: int) -> AuditError:
    """The marker says otherwise than the broker's list."""
    did = "aborts" if kind == ABORT else "commits"
    return AuditError(
        f"{where}the marker at offset {offset} {did} a transaction of producer id {producer}, and the broker's list of "
        "aborted transactions says otherwise",
        REMEDY,
    )


@dataclass(slots=True)
class Witness:
    """Of one range of offsets that ends at ``end``.

    ``due``: producers with data that counts as committed and no marker behind it yet. ``ended``: those with a marker.
    ``unexplained``: producer -> offset of an abort marker that is not in the list, with nothing of the producer before
    it in this range: its transaction was empty, or its data in an earlier range was taken for committed.
    """

    end: int = 1 << 63
    due: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    unexplained: dict[int, int] = field(default_factory=dict)

    def data(self, producer: int, offset: int) -> None:
        """A batch of a transaction that is not in the list."""
        if offset < self.end:
            self.due.add(producer)

    def marker(self, producer: int, offset: int, kind: int, *, listed: bool) -> None:
        """A transaction ends; ``listed``: the broker says that it was aborted.

        Raises:
            AuditError: the marker says otherwise.
        """
        if offset >= self.end:
            return
        if (kind == COMMIT and listed) or (kind == ABORT and producer in self.due):
            raise contradiction("", offset, kind, producer)
        if kind == ABORT and not listed and producer not in self.ended:
            self.unexplained[producer] = offset
        self.due.discard(producer)
        self.ended.add(producer)


def check_chain(where: str, ranges: Iterable[Witness]) -> None:
    """The witnesses of a partition's ranges, in the order of offsets.

    Raises:
        AuditError: a marker contradicts data of an earlier range.
    """
    due: set[int] = set()
    for found in ranges:
        for producer, offset in found.unexplained.items():
            if producer in due:
                raise contradiction(f"{where}: ", offset, ABORT, producer)
        due = (due - found.ended) | found.due
