"""Scenarios in which processes of the mirror die, freeze, or copy the same partitions side by side."""

import time

from chaos.errors import ChaosError
from chaos.play.mirrors import MirrorProcess
from chaos.play.sides import Name, Offsets
from chaos.play.stage import Stage
from chaos.producers.topics import EVERYONE, HOLES, PLAIN
from chaos.scenario import Shape, scenario
from chaos.waiting import until
from chaos.witness.groups import committed, forget, has_member, members
from chaos.witness.probes import joined_since, markers_since
from lab.evidence import (
    BOTH_BEGIN,
    BOTH_COPY,
    HOLE_PASSED,
    JOINED,
    MARKERS,
    MIRROR_KILLED,
    NOTHING_COMMITTED,
    OFFSETS_DELETED,
    TAKEN_OVER,
    WAITED,
    WORKER_FROZEN,
    WORKER_KILLED,
)
from lab.proxy import Frame, hold_answer

GROUP = "Processes"
SESSION_MS = 3_000
SHORT_SESSION = {"session.timeout.ms": SESSION_MS}
FIRST = 15
"""Minimum number of offsets of each partition that two mirrors copy side by side."""
FREEZE_S = 1.5 * SESSION_MS / 1000
COMES_S = 90.0
BACKLOG_S, AT_ONCE_S = 2.0, 0.1
"""How long batches wait, and the maximum time after that until the worker is killed, in seconds. So it is mostly killed
while it sends them."""

BACKLOG = 20
"""Minimum number of offsets that have to wait in that time, in batches of a few records."""


@scenario(
    "worker-kill", group=GROUP, full=50, quick=1, per_stage=10, topics=EVERYONE, struck=(WORKER_KILLED,),
    does="kill -9 of a worker at a random moment",
)  # fmt: skip
def worker_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        stage.mirror.kill_worker()
        stage.recovered()


@scenario(
    "worker-kill-in-holes", group=GROUP, full=50, quick=1, per_stage=10, topics=HOLES, rate=25.0,
    struck=(WORKER_KILLED, MARKERS),
    does="the same, a hole every few records",
)  # fmt: skip
def worker_kill_in_holes(stage: Stage) -> None:
    dense = (stage.topic("txn-dense"), 0)
    for _ in stage.repeat():
        before = until(lambda: stage.destination.ends([dense]), "the destination's end")
        stage.moment()
        stage.mirror.kill_worker()
        stage.recovered()
        stage.seen(MARKERS, markers_since(stage.destination, dense[0], before[dense]))


@scenario(
    "worker-kill-larger-batches", group=GROUP, full=20, quick=1, per_stage=10, topics=PLAIN, rate=100.0,
    flow={"mode": "deep"}, struck=(WORKER_FROZEN, WORKER_KILLED, WAITED),
    does="the same, while small batches that have waited become larger ones (mode: deep)",
)  # fmt: skip
def worker_kill_larger_batches(stage: Stage) -> None:
    topic = (stage.topic("idem-zstd"), 0)
    for _ in stage.repeat():
        frozen = stage.mirror.freeze()
        before = until(lambda: stage.destination.ends([topic]), "the destination's end")
        time.sleep(BACKLOG_S)  # builds a backlog: only batches that are read with one answer are merged
        due = until(lambda: stage.source.ends([topic]), "the source's end")[topic]
        stage.seen(WAITED, int(due >= before[topic] + BACKLOG))
        stage.mirror.thaw(frozen)
        stage.moment(AT_ONCE_S)
        stage.mirror.kill_worker()
        stage.recovered()
        if joined_since(stage.source, stage.destination, topic[0], before[topic]) <= 0:
            raise ChaosError(f"no batches were put together in {topic[0]} at the destination; {stage.told()}")


@scenario(
    "supervisor-kill", group=GROUP, full=20, quick=1, per_stage=10, workers=2, struck=(MIRROR_KILLED,),
    does="kill -9 of the supervisor of two workers, started again",
)  # fmt: skip
def supervisor_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        stage.mirror.kill()
        stage.mirror.start()
        stage.recovered()


@scenario(
    "worker-freeze", group=GROUP, full=10, quick=1, per_stage=5, workers=2, top=SHORT_SESSION,
    struck=(WORKER_FROZEN, TAKEN_OVER),
    does="SIGSTOP of a worker for longer than the session timeout, while another takes over; then SIGCONT",
)  # fmt: skip
def worker_freeze(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        before = _shared_out(stage)
        frozen = stage.mirror.freeze(_owner(stage, stage.chance.choice(stage.names)))
        try:
            time.sleep(FREEZE_S)  # the duration of the fault
            _await_takeover(stage, before)
            stage.caught_up()
        finally:
            stage.mirror.thaw(frozen)
        stage.recovered()


def _shared_out(stage: Stage) -> dict[str, frozenset[Name]]:
    """Waits until each member of the group has partitions. Returns member id -> its partitions."""

    def all_have() -> dict[str, frozenset[Name]]:
        stage.look()
        found = members(stage.source, stage.group) or {}
        return found if len(found) > 1 and all(found.values()) else {}

    return until(all_have, lambda: f"partitions for every member; {stage.told()}")


def _owner(stage: Stage, name: Name) -> int:
    return until(lambda: stage.mirror.owner(name) or 0, lambda: f"somebody to own {name}; {stage.told()}")


def _await_takeover(stage: Stage, before: dict[str, frozenset[Name]]) -> None:
    """Waits until a member has left the group, and all partitions are assigned to the others. ``before``: the members
    with their partitions before."""

    def taken_over() -> bool:
        now = members(stage.source, stage.group)
        everything = frozenset().union(*before.values())
        return now is not None and len(now) < len(before) and frozenset().union(*now.values()) == everything

    stage.await_that(taken_over, TAKEN_OVER)


@scenario(
    "worker-freeze-in-hole", group=GROUP, full=20, quick=1, per_stage=5, workers=2, top=SHORT_SESSION,
    topics=HOLES, rate=25.0, shape=Shape(proxied=True), struck=(WORKER_FROZEN, TAKEN_OVER, HOLE_PASSED),
    does="the same with a hole every few records: frozen between an end read and a marker, while the other passes it",
)  # fmt: skip
def worker_freeze_in_hole(stage: Stage) -> None:
    dense = (stage.topic("txn-dense"), 0)
    for _ in stage.repeat():
        stage.moment()
        before = _shared_out(stage)
        # Before a marker, the worker reads the log's end. It is frozen with the answer in its socket.
        held = stage.destination.network.arm("ListOffsets", hold_answer(), where=lambda frame: _looks(frame, dense[0]))
        answer = held.wait(COMES_S)
        frozen = stage.mirror.freeze(_owner(stage, dense))
        held.deliver()
        ended = _end_told(answer, dense[0])
        try:
            time.sleep(FREEZE_S)  # the duration of the fault
            _await_takeover(stage, before)
            stage.await_that(lambda: stage.destination.ends([dense]).get(dense, 0) > ended, HOLE_PASSED)  # noqa: B023
            stage.caught_up()
        finally:
            stage.mirror.thaw(frozen)
        stage.recovered()


def _looks(answer: Frame, topic: str) -> bool:
    """Returns True if a ListOffsets answer is about the log end of a topic, as the mirror reads it before markers: with
    the replica id of a replica."""
    assert answer.request is not None
    asked = answer.request.decode()
    return asked.replica_id >= 0 and any(one.name == topic for one in asked.topics)


def _end_told(answer: Frame, topic: str) -> int:
    (found,) = (one.partitions[0] for one in answer.decode().topics if one.name == topic)
    return int(found.offset)


@scenario(
    "two-groups", group=GROUP, full=6, quick=1, topics=HOLES, rate=25.0,
    struck=(BOTH_COPY.times(3), MIRROR_KILLED),
    does="two mirrors in different groups on the same partitions, a hole every few records",
)  # fmt: skip
def two_groups(stage: Stage) -> None:
    for _ in stage.repeat():
        other = stage.start_mirror(top=stage.in_group("other"))
        for _ in range(3):
            before = {mirror: mirror.copied for mirror in (stage.mirror, other)}
            stage.moment(3.0)
            stage.await_that(lambda: _both_copy(stage, before), BOTH_COPY)  # noqa: B023
            stage.caught_up()
        stage.moment()
        other.kill()
        stage.recovered()


def _both_copy(stage: Stage, before: dict[MirrorProcess, int]) -> bool:
    """Returns True if both mirrors have all partitions assigned, and have forwarded batches since. ``before``: mirror
    -> number of batches that it had forwarded before."""
    given = [
        frozenset().union(*(members(stage.source, group) or {}).values())
        for group in (stage.group, f"{stage.group}-other")
    ]
    grown = [mirror.copied > count for mirror, count in before.items()]
    return all(grown) and all(one == frozenset(stage.names) for one in given)


@scenario(
    "two-start-on-nothing", group=GROUP, full=10, quick=1, bare=True, struck=(BOTH_BEGIN,),
    does="two mirrors of different groups start together on empty partitions",
)  # fmt: skip
def two_start_on_nothing(stage: Stage) -> None:
    stage.create_topics()
    for _ in stage.repeat():
        _start_two(stage, dict.fromkeys(stage.names, 0))
        stage.flowing()
        stage.recovered()


def _start_two(stage: Stage, ends: Offsets) -> None:
    """Starts two mirrors, and waits until each has located every partition at its end. Only then starts a stream, so
    that both begin with the same records. ``ends``: partition -> present end offset of the destination."""
    stage.start_mirror()
    stage.start_mirror(top=stage.in_group("other"))
    stage.await_that(lambda: len(_begun_alike(stage, ends)) == len(ends), BOTH_BEGIN, COMES_S)
    stage.start_stream()
    until(
        lambda: (now := stage.source.ends(stage.names)) and all(now[name] >= end + FIRST for name, end in ends.items()),
        "records to copy",
    )


def _begun_alike(stage: Stage, ends: Offsets) -> set[Name]:
    """Returns the partitions that both mirrors have first located at these ends. ``ends``: partition -> offset."""
    first: list[dict[Name, int]] = []
    for mirror in stage.mirrors[-2:]:
        told = [(line["topic"], line["partition"], line["offset"]) for line in mirror.of("located")]
        first.append({(topic, index): offset for topic, index, offset in reversed(told)})
    return {name for name, end in ends.items() if all(one.get(name) == end for one in first)}


@scenario(
    "two-start-on-emptied", group=GROUP, full=10, quick=1, bare=True, struck=(BOTH_BEGIN,),
    does="two mirrors of different groups start together on logs that are empty and end above 0",
)  # fmt: skip
def two_start_on_emptied(stage: Stage) -> None:
    stage.begin()
    stage.stream.stop()
    stage.caught_up()
    stage.mirror.stop()
    ends = until(lambda: stage.destination.ends(stage.names), "the destination's ends")
    for side in stage.pair.sides:
        side.delete_before(ends)
    for _ in stage.repeat():
        _start_two(stage, ends)
        stage.recovered()


@scenario(
    "rebalance-storm", group=GROUP, full=3, quick=1, top=SHORT_SESSION, struck=(JOINED.times(10),),
    does="other mirrors join the group and leave it, cleanly or killed, ten times in a row",
)  # fmt: skip
def rebalance_storm(stage: Stage) -> None:
    for _ in stage.repeat():
        for at in range(10):
            name = f"joining-{len(stage.mirrors)}-"
            joining = stage.start_mirror(cluster={"client.id": name})
            stage.await_that(lambda: has_member(stage.source, stage.group, name), JOINED, COMES_S)  # noqa: B023
            stage.moment(2.0)
            if at % 2:
                joining.kill()
            else:
                joining.stop()
            stage.look()
        stage.recovered()


@scenario(
    "crash-before-first-commit", group=GROUP, full=10, quick=1, bare=True, struck=(MIRROR_KILLED, NOTHING_COMMITTED),
    does="kill -9 of everything as soon as the first record is at the destination",
)  # fmt: skip
def crash_before_first_commit(stage: Stage) -> None:
    stage.create_topics()
    stage.start_stream()
    for _ in stage.repeat():
        mirror = stage.start_mirror()
        until(lambda: any(stage.destination.ends([name]).get(name, 0) > 0 for name in stage.names), "a first record")
        mirror.kill()
        if committed(stage.source, stage.group) == {}:
            stage.seen(NOTHING_COMMITTED)
        mirror.start()
        stage.flowing()
        stage.recovered()


@scenario(
    "group-offsets-deleted", group=GROUP, full=5, quick=1, per_stage=5, struck=(OFFSETS_DELETED,),
    does="the mirror is stopped, the group's committed offsets are deleted, the mirror is started",
)  # fmt: skip
def group_offsets_deleted(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        stage.caught_up()
        stage.mirror.stop()
        had = committed(stage.source, stage.group)
        forget(stage.source, stage.group)
        if had and committed(stage.source, stage.group) == {}:
            stage.seen(OFFSETS_DELETED)
        stage.mirror.start()
        stage.recovered()
