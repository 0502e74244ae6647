"""Processes of the mirror die, freeze, and meet each other."""

import time
from contextlib import suppress

from confluent_kafka import KafkaException

from chaos.mirrors import MirrorProcess
from chaos.scenario import scenario
from chaos.stage import Stage
from chaos.topics import EVERYONE, HOLES
from chaos.waiting import until

GROUP = "Processes"
SESSION_MS = 3_000
SHORT_SESSION = {"session.timeout.ms": SESSION_MS}


@scenario(
    "worker-kill", group=GROUP, full=50, quick=1, per_stage=10, topics=EVERYONE,
    does="kill -9 of a worker at a random moment",
)  # fmt: skip
def worker_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        stage.mirror.kill_worker()
        stage.recovered()


@scenario(
    "worker-kill-in-holes", group=GROUP, full=50, quick=1, per_stage=10, topics=HOLES, rate=25.0,
    does="the same, a hole every few records",
)  # fmt: skip
def worker_kill_in_holes(stage: Stage) -> None:
    worker_kill(stage)


@scenario(
    "supervisor-kill", group=GROUP, full=20, quick=1, per_stage=10, workers=2,
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
    does="SIGSTOP of a worker for longer than the session timeout, while another takes over; then SIGCONT",
)  # fmt: skip
def worker_freeze(stage: Stage) -> None:
    for at in stage.repeat():
        stage.moment()
        _outlived(stage, stage.mirror, at)


@scenario(
    "worker-freeze-in-hole", group=GROUP, full=20, quick=1, per_stage=5, workers=2, top=SHORT_SESSION,
    topics=HOLES, rate=25.0,
    does="the same with a hole every few records: frozen between an end read and a marker, while the other passes it",
)  # fmt: skip
def worker_freeze_in_hole(stage: Stage) -> None:
    for at in stage.repeat():
        stage.moment()
        _outlived(stage, stage.mirror, at)


def _outlived(stage: Stage, mirror: MirrorProcess, at: int) -> None:
    """A worker sleeps until the other has done its work, and wakes up in a world that went on."""
    workers = until(mirror.workers, "the workers")
    frozen = mirror.freeze(workers[at % len(workers)])
    try:
        time.sleep(1.5 * SESSION_MS / 1000)  # not a wait: this long is the fault
        if len(workers) > 1:
            stage.caught_up()
    finally:
        mirror.thaw(frozen)
    stage.recovered()


@scenario(
    "two-groups", group=GROUP, full=6, quick=1, topics=HOLES, rate=25.0,
    does="two mirrors in different groups on the same partitions, a hole every few records",
)  # fmt: skip
def two_groups(stage: Stage) -> None:
    for _ in stage.repeat():
        other = stage.start_mirror(top=stage.in_group("other"))
        for _ in range(3):
            stage.moment(3.0)
            stage.caught_up()
        stage.moment()
        other.kill()
        stage.recovered()


@scenario(
    "two-start-on-nothing", group=GROUP, full=10, quick=1, bare=True,
    does="two mirrors of different groups start together on empty partitions",
)  # fmt: skip
def two_start_on_nothing(stage: Stage) -> None:
    stage.create_topics()
    stage.start_stream()
    for _ in stage.repeat():
        stage.start_mirror()
        stage.start_mirror(top=stage.in_group("other"))
        stage.flowing()
        stage.recovered()


@scenario(
    "two-start-on-emptied", group=GROUP, full=10, quick=1,
    does="two mirrors of different groups start together on logs that are empty and end above 0",
)  # fmt: skip
def two_start_on_emptied(stage: Stage) -> None:
    stage.mirror.stop()
    ends = until(lambda: stage.destination.ends(stage.names), "the destination's ends")
    for side in stage.pair.sides:  # at both, so that both hold the same
        side.delete_before(ends)
    for _ in stage.repeat():
        stage.mirror.start()
        stage.start_mirror(top=stage.in_group("other"))
        stage.recovered()


@scenario(
    "rebalance-storm", group=GROUP, full=3, quick=1, top=SHORT_SESSION,
    does="other mirrors join the group and leave it, cleanly or killed, ten times in a row",
)  # fmt: skip
def rebalance_storm(stage: Stage) -> None:
    for _ in stage.repeat():
        for at in range(10 if stage.repetitions > 1 else 5):
            joining = stage.start_mirror()
            stage.moment(4.0)
            if at % 2:
                joining.kill()
            else:
                joining.stop()
            stage.look()
        stage.recovered()


@scenario(
    "crash-before-first-commit", group=GROUP, full=10, quick=1, bare=True,
    does="kill -9 of everything as soon as the first record is at the destination",
)  # fmt: skip
def crash_before_first_commit(stage: Stage) -> None:
    stage.create_topics()
    stage.start_stream()
    for _ in stage.repeat():
        mirror = stage.start_mirror()
        until(lambda: any(stage.destination.ends([name]).get(name, 0) > 0 for name in stage.names), "a first record")
        mirror.kill()
        mirror.start()
        stage.flowing()
        stage.recovered()


@scenario(
    "group-offsets-deleted", group=GROUP, full=5, quick=1, per_stage=5,
    does="the mirror is stopped, the group's committed offsets are deleted, the mirror is started",
)  # fmt: skip
def group_offsets_deleted(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        stage.caught_up()
        stage.mirror.stop()
        _forget(stage)
        stage.mirror.start()
        stage.recovered()


def _forget(stage: Stage) -> None:
    """Delete the group; a group whose last member has just left may still be in use for a moment."""

    def gone() -> bool:
        for future in stage.source.admin.delete_consumer_groups([stage.group]).values():
            with suppress(KafkaException):
                future.result(10)
        groups = stage.source.admin.list_consumer_groups().result(10).valid
        return stage.group not in {one.group_id for one in groups}

    until(gone, f"group {stage.group} to be deleted")
