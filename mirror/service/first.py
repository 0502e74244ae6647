"""What falls to the supervisor where it is the first process: in a container, it is PID 1.

The kernel drops a signal to PID 1 that has no handler yet, so one that comes while the program starts would be lost.
And PID 1 inherits the children of processes that die, such as those of a killed worker or of a command that somebody
runs in the container. They stay as zombies until it has asked for their ends.
"""

import os
import signal
from collections.abc import Collection
from contextlib import suppress

STOPPING = (signal.SIGTERM, signal.SIGINT)
PID = 1
MOST = 1_000
"""Most ends that are asked for at once."""


def hold_signals() -> None:
    """As PID 1, has the signals that stop the service wait until ``let_signals``, also across exec: blocked ones
    are not dropped."""
    if os.getpid() == PID:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def let_signals() -> None:
    """Lets signals through that are held. Call it once there are handlers, and before another process is started, which
    would inherit that they are blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def reap(own: Collection[int]) -> int:
    """Asks for the ends of children that this program has not started. Returns how many have ended.

    It stops at the first of its own that has ended: whoever waits for that one will ask for its end.

    Args:
        own: pids of the children that it has started.
    """
    for count in range(MOST):
        with suppress(ChildProcessError):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and ended.si_pid not in own:
                os.waitpid(ended.si_pid, os.WNOHANG)
                continue
        return count
    return MOST
