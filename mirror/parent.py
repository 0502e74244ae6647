"""A process that ends with its parent, whatever the parent dies of."""

import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
"""<linux/prctl.h>"""


def death_signal() -> Callable[[], None]:
    """Returns a function for a child process to call before it does anything else: the kernel then kills the child with
    SIGKILL when the thread that started it ends (Linux; nothing happens elsewhere). That works even if the child is
    stopped or stuck. It allocates nothing, so that it can be called between fork and exec."""
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return lambda: None
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def die_with(parent_pid: int, *, exit_code: int = 1) -> None:
    """Ends this process when its parent ends: at once, with ``exit_code``, if the parent is gone already. (If it died
    between the fork and this call, no signal will ever come.)"""
    death_signal()()
    if os.getppid() != parent_pid:
        os._exit(exit_code)
