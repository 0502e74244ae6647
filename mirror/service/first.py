"""The additional duties of the supervisor if it is PID 1, as in a container.

The kernel drops a signal to PID 1 that has no handler yet, so a signal that comes while the program starts would be
lost. And PID 1 inherits the children of processes that die, such as those of a killed worker or of a command that was
run in the container. They stay as zombies until PID 1 reaps them (waitpid).
"""

import os
import signal
from collections.abc import Collection
from contextlib import suppress

STOPPING = (signal.SIGTERM, signal.SIGINT)
PID = 1
MOST = 1_000
"""Most children that are reaped in one call."""


def hold_signals() -> None:
    """If this process is PID 1, blocks the signals that stop the service until ``let_signals``, also across exec:
    blocked signals are not dropped."""
    if os.getpid() == PID:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def let_signals() -> None:
    """Unblocks these signals. To be called once there are handlers, and before another process is started, which would
    inherit the blocked signals."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def reap(own: Collection[int]) -> int:
    """Reaps children that have ended and that this program has not started. Returns their number.

    It stops at the first of this program's own children that has ended: the code that waits for that child reaps it.

    Args:
        own: pids of the children that this program has started.
    """
    for count in range(MOST):
        with suppress(ChildProcessError):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and ended.si_pid not in own:
                os.waitpid(ended.si_pid, os.WNOHANG)
                continue
        return count
    return MOST
