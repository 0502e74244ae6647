"""Checks the broker's list of aborted transactions against the markers in the log, a second witness. Pure.

The list comes with each answer and should be complete for it. If it is not (a transaction index is damaged or gone),
aborted data looks due. A transaction that is not in the list but ends with an abort marker, however far after its data,
is a contradiction. So is one that is in it, and ends with a commit marker: then due data looks aborted. So all answers
of a range share one witness, and the ranges of a partition are chained.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mirror.audit.errors import AuditError
from mirror.records.transactions import ABORT, COMMIT

REMEDY = "check that log with kafka-dump-log; its transaction index may be damaged"


def contradiction(where: str, offset: int, kind: int, producer: int) -> AuditError:
    """Returns the error for a marker that contradicts the broker's list."""
    did = "aborts" if kind == ABORT else "commits"
    return AuditError(
        f"{where}the marker at offset {offset} {did} a transaction of producer id {producer}, and the broker's list of "
        "aborted transactions says otherwise",
        REMEDY,
    )


@dataclass(slots=True)
class Witness:
    """The witness of one range of offsets, which ends at ``end``.

    ``due``: producers with data that counts as committed and no marker after it yet. ``undone``: producers with data
    that counts as aborted, likewise. ``ended``: producers with a marker. ``unexplained``: producer -> offset of an
    abort marker that is not in the list, with no other marker of the producer before it in this range. Either its
    transaction was empty, or its data in an earlier range was taken for committed. ``commits``: producer -> offset of a
    commit marker, likewise.
    """

    end: int = 1 << 63
    due: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    unexplained: dict[int, int] = field(default_factory=dict)
    undone: set[int] = field(default_factory=set)
    commits: dict[int, int] = field(default_factory=dict)

    def data(self, producer: int, offset: int, *, listed: bool) -> None:
        """Notes a batch of a transaction. ``listed``: the broker says that it was aborted."""
        if offset < self.end:
            (self.undone if listed else self.due).add(producer)

    def marker(self, producer: int, offset: int, kind: int, *, listed: bool) -> None:
        """Notes the end of a transaction. ``listed``: the broker's list has it as aborted.

        Raises:
            AuditError: the marker contradicts the list.
        """
        if offset >= self.end:
            return
        is_undone = listed or producer in self.undone
        if (kind == COMMIT and is_undone) or (kind == ABORT and producer in self.due):
            raise contradiction("", offset, kind, producer)
        if kind == ABORT and not listed and producer not in self.ended:
            self.unexplained[producer] = offset
        if kind == COMMIT and producer not in self.ended:
            self.commits[producer] = offset
        self.due.discard(producer)
        self.undone.discard(producer)
        self.ended.add(producer)


def check_chain(where: str, ranges: Iterable[Witness]) -> None:
    """Checks the witnesses of a partition's ranges, in offset order, against each other.

    Raises:
        AuditError: a marker contradicts data of an earlier range.
    """
    due, undone = set[int](), set[int]()
    for found in ranges:
        for kind, markers, data in ((ABORT, found.unexplained, due), (COMMIT, found.commits, undone)):
            for producer, offset in markers.items():
                if producer in data:
                    raise contradiction(f"{where}: ", offset, kind, producer)
        due = (due - found.ended) | found.due
        undone = (undone - found.ended) | found.undone
