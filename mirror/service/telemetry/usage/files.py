"""Looks at the files on which the supervisor reports, in daemon threads: on a volume that hangs, a call about a file
may never return, and must block neither the supervisor's event loop nor its end."""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from mirror.net.security.certificates import Certificate, certificates_of
from mirror.net.security.options import SecurityOptions, TlsOptions

DEADLINE_S = 1.0
"""Longest wait for a look. One that takes longer goes on in its thread."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Beside(Generic[K, V]):
    """Does the same work for each of several files: in one thread for each file, and one look at a time.

    Attributes:
        known: file -> result of the last look that has ended.
        running: file that is being looked at -> since when (monotonic).
    """

    def __init__(self, work: Callable[[K, V | None], V], failed: Callable[[K, Exception], V], *, name: str) -> None:
        """
        Args:
            work: looks at a file, and returns the result. It gets the file and the previous result (None at first), and
                runs in a thread.
            failed: returns the result for a file if ``work`` raises.
            name: name of the threads.
        """
        self.known: dict[K, V] = {}
        self.running: dict[K, float] = {}
        self._work = work
        self._failed = failed
        self._name = name

    def hangs(self, key: K) -> bool:
        """Returns True if the last look at this file has not ended in time."""
        return time.monotonic() - self.running.get(key, time.monotonic()) >= DEADLINE_S

    async def look(self, keys: Iterable[K]) -> None:
        """Looks at all these files at the same time, and forgets all others. Returns when all looks have ended, but
        after ``DEADLINE_S`` at the latest. If an earlier look at a file still runs, no other one is begun or waited
        for."""
        wanted = set(keys)
        for key in list(self.known):  # a copy: threads may add to it
            if key not in wanted:
                self.known.pop(key, None)
        due = [key for key in wanted if key not in self.running]
        if not due:
            return
        loop = asyncio.get_running_loop()
        ended = [self._begin(key, loop) for key in due]
        await asyncio.wait(ended, timeout=DEADLINE_S)

    def _begin(self, key: K, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = loop.create_future()
        before = self.known.get(key)

        def tell() -> None:
            if not done.done():
                done.set_result(None)

        def work() -> None:
            try:
                self.known[key] = self._work(key, before)
            except Exception as error:  # of any kind: the next look may succeed
                self.known[key] = self._failed(key, error)
            finally:
                self.running.pop(key, None)
                with suppress(RuntimeError):  # the event loop is closed
                    loop.call_soon_threadsafe(tell)

        self.running[key] = time.monotonic()
        threading.Thread(target=work, name=self._name, daemon=True).start()
        return done


class TlsLook(NamedTuple):
    """The state of a cluster's files of certificates and keys. ``usable``: True if connections can be made with
    them."""

    certificates: list[Certificate]
    usable: bool


def _of_tls(options: TlsOptions, _: TlsLook | None) -> TlsLook:
    # Imported only here: apart from this, the supervisor needs no modules for connections.
    from mirror.net.security.tls import are_usable

    return TlsLook(certificates_of(options), are_usable(options))


tls_files: Beside[TlsOptions, TlsLook] = Beside(_of_tls, lambda *_: TlsLook([], False), name="certificates")
"""The looks of this process at the files of clusters."""


async def look_at(clusters: Mapping[str, SecurityOptions]) -> None:
    """Looks at the files of all clusters with TLS, for ``tls_of``. ``clusters``: name -> security settings."""
    await tls_files.look(security.tls for security in clusters.values() if security.tls is not None)


def tls_of(options: TlsOptions) -> TlsLook | None:
    """Returns the result of the last look; None if there was none. While a look hangs, the files count as not
    usable."""
    known = tls_files.known.get(options)
    if tls_files.hangs(options):
        return TlsLook(known.certificates if known else [], False)
    return known
