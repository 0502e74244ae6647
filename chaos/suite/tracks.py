"""Does pieces of work in several parallel processes; each takes the next piece when it has finished one.

A track has brokers, mirrors and proxies of its own. Its messages come back over a pipe; nothing else is shared.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from chaos.errors import ChaosError

__all__ = ["Say", "Work", "side_by_side"]

Say = Callable[[Any], None]
"""Takes anything that can be pickled."""
Work = Callable[[Iterator[str], Say], None]
"""Does the pieces that it is given, and reports by ``Say``; in a process of its own, so it must be picklable."""

_NEXT = None
"""From a track: a request for the next piece. To a track: there is none."""


def side_by_side(work: Work, pieces: Sequence[str], count: int, hear: Say) -> None:
    """Do all pieces, in ``count`` processes at most.

    However it ends, even if this process is killed, the processes end too: a SIGTERM is a KeyboardInterrupt to them.

    Args:
        work: the work of each process.
        pieces: handed out in this order.
        count: number of processes.
        hear: called with their messages.

    Raises:
        ChaosError: one of them ended with an error; the others have done what they could.
    """
    left = iter(pieces)
    context = multiprocessing.get_context("spawn")
    tracks: set[Connection] = set()
    processes: list[BaseProcess] = []
    try:
        for number in range(min(count, len(pieces))):
            ours, theirs = context.Pipe()
            begun = context.Process(target=_track, args=(work, theirs), name=f"track {number + 1}")
            begun.start()
            theirs.close()
            tracks.add(ours)
            processes.append(begun)
        while tracks:
            for connection in wait(list(tracks)):
                assert isinstance(connection, Connection)
                said: Any = _NEXT
                try:
                    said = connection.recv()
                    if said is _NEXT:
                        connection.send(next(left, _NEXT))
                except (EOFError, OSError):
                    tracks.discard(connection)
                if said is not _NEXT:
                    hear(said)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
    failed = [f"{process.name} ended with exit code {process.exitcode}" for process in processes if process.exitcode]
    if failed:
        raise ChaosError(", ".join(failed), "what it said last is above")


def _track(work: Work, connection: Connection) -> None:
    """The body of a track's process."""
    # Ctrl-C goes to all processes of a terminal: the parent ends the others, once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupted)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    saying = threading.Lock()

    def say(what: Any) -> None:
        with saying:
            connection.send(what)

    def pieces() -> Iterator[str]:
        while True:
            say(_NEXT)
            piece = connection.recv()
            if piece is _NEXT:
                return
            yield piece

    try:
        work(pieces(), say)
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _interrupted(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # only cleanup follows
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
