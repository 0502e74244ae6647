"""Does pieces of work in several parallel processes, called tracks. Each takes the next piece when it has finished one.

Each track has its own brokers, mirrors and proxies. Its messages come back over a pipe; nothing else is shared.
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
"""Does the pieces that it gets, and reports by ``Say``. It runs in a separate process, so it must be picklable."""

_NEXT = None
"""From a track: a request for the next piece. To a track: there are no more pieces."""


def side_by_side(work: Work, pieces: Sequence[str], count: int, hear: Say) -> None:
    """Does all pieces, in at most ``count`` processes.

    However this function ends, even if this process is killed, the other processes end as well. They get a SIGTERM,
    which raises KeyboardInterrupt in them.

    Args:
        work: the work of each process.
        pieces: the pieces, in the order in which they are handed out.
        count: maximum number of processes.
        hear: called with each message of the processes.

    Raises:
        ChaosError: a process has ended with an error. The others have done the remaining pieces.
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
    """Runs a track, in its process."""
    # Ctrl-C goes to all processes of a terminal. It is ignored here, since the parent ends the tracks.
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # only cleanup follows, which must not be interrupted
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
