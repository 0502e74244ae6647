"""What stands in the internal topic of a flow between two fake clusters, and the events that it is kept for."""

from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import LastCopied
from mirror.offsetmap.internal.ledger import Ledger
from tests.fakes.broker import FakeCluster
from tests.relay.stage.flows import Flow

SIDE = Subject("t", 0, "t")
NEVER_S = 3_600.0
FIRST = ("t", 0)


def ledger(destination: FakeCluster) -> Ledger:
    """What is written down at the destination."""
    found = Ledger()
    for key, value in destination.remembered:
        found.apply(key, value)
    return found


def last_copied(destination: FakeCluster) -> LastCopied | None:
    """What was copied last, by the newest note of it."""
    notes = ledger(destination).notes(SIDE)
    return notes[-1].copied if notes else None


async def noted(flow: Flow) -> None:
    """All is copied, and what was copied last is written down, as it is at a clean stop."""
    await flow.copied()
    await flow.relay.durable.write_down()


def recreate(cluster: FakeCluster, *stored: bytes) -> None:
    """Topic "t" deleted, and made again."""
    del cluster.topics["t"]
    cluster.add_topic("t")
    cluster.store("t", 0, *stored)


def empty(cluster: FakeCluster) -> None:
    """Retention, or DeleteRecords, has taken everything; the end stays."""
    log = cluster.log("t")
    log.delete_before(log.end)


async def vouches(*_: object) -> int:
    """In place of ``notes.vouch``: whatever the source has, what was copied last is taken to be there."""
    return -1
