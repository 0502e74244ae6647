"""Nemeses of the mirror's processes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chaos.nemeses.places import GROUP, MIRRORS, mirror_of
from chaos.nemeses.schedule import Strike, nemesis
from chaos.play.mirrors import MirrorProcess
from chaos.waiting import until
from chaos.witness.groups import has_member
from lab.evidence import (
    JOINED_AND_LEFT,
    MIRROR_KILLED,
    MIRROR_RESTARTED,
    SUPERVISOR_FROZEN,
    WORKER_FROZEN,
    WORKER_KILLED,
)

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["up"]

_COMES_S = 30.0


@nemesis("worker-kill", places=MIRRORS, struck=WORKER_KILLED)
def worker_kill(stage: "Stage", strike: Strike) -> Iterator[None]:
    mirror = mirror_of(stage, strike)
    mirror.kill_worker(strike.pick(range(len(up(mirror)))))
    yield


@nemesis("worker-freeze", places=MIRRORS, struck=WORKER_FROZEN)
def worker_freeze(stage: "Stage", strike: Strike) -> Iterator[None]:
    mirror = mirror_of(stage, strike)
    frozen = mirror.freeze(strike.pick(up(mirror)))
    yield
    mirror.thaw(frozen)


@nemesis("supervisor-kill", places=MIRRORS, struck=MIRROR_KILLED)
def supervisor_kill(stage: "Stage", strike: Strike) -> Iterator[None]:
    mirror = mirror_of(stage, strike)
    mirror.kill()
    yield
    mirror.start()


@nemesis("supervisor-freeze", places=MIRRORS, struck=SUPERVISOR_FROZEN)
def supervisor_freeze(stage: "Stage", strike: Strike) -> Iterator[None]:
    mirror = mirror_of(stage, strike)
    up(mirror)
    frozen = mirror.freeze(mirror.pid)
    yield
    mirror.thaw(frozen, SUPERVISOR_FROZEN)


@nemesis("supervisor-restart", places=MIRRORS, struck=MIRROR_RESTARTED)
def supervisor_restart(stage: "Stage", strike: Strike) -> Iterator[None]:
    mirror = mirror_of(stage, strike)
    before = mirror.pid
    up(mirror)
    ended = mirror.stop() is not None and not mirror.running
    yield
    mirror.start()
    mirror.record.note(MIRROR_RESTARTED, int(ended and mirror.running and mirror.pid != before))


@nemesis("third-mirror", places=GROUP, struck=JOINED_AND_LEFT)
def third_mirror(stage: "Stage", strike: Strike) -> Iterator[None]:
    """Makes a third mirror join the group and leave it, cleanly or by kill -9."""
    name = f"third-{len(stage.mirrors)}-"
    third = stage.start_mirror(cluster={"client.id": name})
    yield

    def has_it() -> bool | None:
        return has_member(stage.source, stage.group, name)

    joined = stage.soon(has_it, _COMES_S)
    up(third)
    if strike.chance % 2:
        third.kill()
    else:
        third.stop()
    stage.seen(JOINED_AND_LEFT, int(joined))
    # A dead member may stay for longer than its session timeout: during a rebalance that waits for draining members.
    if not stage.soon(lambda: has_it() is False, stage.patience_s) and has_it():
        third.conduct.stayed(stage.group)


def up(mirror: MirrorProcess) -> list[int]:
    """Waits until a mirror has workers, and returns their process ids. Before that, SIGTERM would just end the
    interpreter."""
    return until(lambda: [pid for pid in mirror.workers() if pid != mirror.pid], lambda: f"a worker; {mirror.told()}")
