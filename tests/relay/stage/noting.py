"""Helpers for tests about what is in a flow's internal topic, between two fake clusters, and the events that it is kept
for."""

from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import LastCopied
from mirror.offsetmap.internal.ledger import Ledger
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.records.builders import raw_batch
from tests.relay.stage.flows import Flow, fill, mirroring

SIDE = Subject("t", 0, "t")
NEVER_S = 3_600.0
FIRST = ("t", 0)


def ledger(destination: FakeCluster) -> Ledger:
    """Returns what is written down at the destination."""
    found = Ledger()
    for key, value in destination.remembered:
        found.apply(key, value)
    return found


def last_copied(destination: FakeCluster) -> LastCopied | None:
    """Returns what was copied last according to the newest note; None if there is no note."""
    notes = ledger(destination).notes(SIDE)
    return notes[-1].copied if notes else None


async def noted(flow: Flow) -> None:
    """Waits until everything is copied, and writes down what was copied last, as a clean stop does."""
    await flow.copied()
    await flow.relay.durable.write_down()


async def halted_by_another(source: FakeCluster, destination: FakeCluster) -> None:
    """Plays a life of a mirror that halts at a batch of somebody else, and writes that down."""
    fill(source)
    destination.add_topic("t")
    destination.log("t").produce(raw_batch(b"x", base_offset=0))
    async with mirroring(source, destination) as flow:
        assert await flow.halted() == "foreign_writer"
        await until(lambda: ledger(destination).halts)


def recreate(cluster: FakeCluster, *stored: bytes) -> None:
    """Deletes topic "t" and creates it again, with these batches."""
    del cluster.topics["t"]
    cluster.add_topic("t")
    cluster.store("t", 0, *stored)


def empty(cluster: FakeCluster) -> None:
    """Removes everything from topic "t", as retention or DeleteRecords does. Its end stays."""
    log = cluster.log("t")
    log.delete_before(log.end)


async def vouches(*_: object) -> int:
    """Replaces ``notes.vouch``: whatever the source has, it counts as having what was copied last."""
    return -1
