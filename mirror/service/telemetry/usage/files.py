"""Looks at files that the supervisor tells of, in threads that nobody waits for at the end: on a volume that hangs, a
call about a file may never return, and the supervisor's event loop must not stand still for it."""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from mirror.net.security.certificates import Certificate, certificates_of
from mirror.net.security.options import SecurityOptions, TlsOptions

DEADLINE_S = 1.0
"""A look that takes longer is not waited for."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Beside(Generic[K, V]):
    """Does the same work for each of several files: one thread each, and one look at a time.

    Attributes:
        known: what the last look that ended has found, by file.
        running: files that are being looked at -> since when (monotonic).
    """

    def __init__(self, work: Callable[[K, V | None], V], failed: Callable[[K, Exception], V], *, name: str) -> None:
        """
        Args:
            work: looks at a file; it also gets what was known before. Runs in a thread.
            failed: what is known of a file if ``work`` raises.
            name: of the threads.
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
        """Looks at these files at once, and forgets any other. Returns when all looks have ended, after ``DEADLINE_S``
        at the latest. What hangs already is not waited for, and not asked again."""
        wanted = set(keys)
        for key in list(self.known):  # threads may add to it
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
            except Exception as error:  # whatever it is, the next look may go better
                self.known[key] = self._failed(key, error)
            finally:
                self.running.pop(key, None)
                with suppress(RuntimeError):  # the loop is closed by now
                    loop.call_soon_threadsafe(tell)

        self.running[key] = time.monotonic()
        threading.Thread(target=work, name=self._name, daemon=True).start()
        return done


class TlsLook(NamedTuple):
    """What a cluster's files of certificates and keys are like. ``usable``: a connection can be made with them."""

    certificates: list[Certificate]
    usable: bool


def _of_tls(options: TlsOptions, _: TlsLook | None) -> TlsLook:
    # Otherwise the supervisor needs none of what connections are made of.
    from mirror.net.security.tls import are_usable

    return TlsLook(certificates_of(options), are_usable(options))


tls_files: Beside[TlsOptions, TlsLook] = Beside(_of_tls, lambda *_: TlsLook([], False), name="certificates")
"""This process's looks at the files of clusters."""


async def look_at(clusters: Mapping[str, SecurityOptions]) -> None:
    """Looks at the files of all clusters with TLS, for ``tls_of``. ``clusters``: how each is protected."""
    await tls_files.look(security.tls for security in clusters.values() if security.tls is not None)


def tls_of(options: TlsOptions) -> TlsLook | None:
    """Returns what the last look has found. While one hangs, no connection can be made. None: there was none."""
    known = tls_files.known.get(options)
    if tls_files.hangs(options):
        return TlsLook(known.certificates if known else [], False)
    return known
