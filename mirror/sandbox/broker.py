"""One broker of a cluster: its files, its process, and whether it is ready."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path

from mirror.sandbox import logs, probe
from mirror.sandbox.children.process import Process, Processes
from mirror.sandbox.errors import SandboxError

__all__ = ["Broker"]

START_TIMEOUT_S = 120.0  # a loaded machine with two cores starts three of them in about 30 s
STOP_TIMEOUT_S = 180.0
_ASK_EVERY_S = 0.05
_PORT_TAKEN = ("Address already in use", "BindException")
# ZooKeeper still has its killed predecessor registered (texts of 2.x and of 0.10) until that session expires.
_STALE_REGISTRATION = ("NodeExistsException", "already registered on the path")


class Broker:
    """A broker's process, which may be stopped, killed, paused and started again with its data and its port.

    Attributes:
        node_id: its number in the cluster, from 1.
        host: the loopback address on which it serves clients.
        port: the port on which it serves clients.
        proxied_port: the port for connections through a proxy; None without such a listener.
        ports: name -> port of further listeners.
        data_dir: its log directory (``log.dirs``).
        log_path: the file with its output.
        properties: its configuration; a change takes effect at the next ``start``.
    """

    def __init__(
        self, *, processes: Processes, folder: Path, node_id: int, host: str, port: int, properties: Mapping[str, str],
        command: list[str],
    ) -> None:  # fmt: skip
        self._processes = processes
        self._command = command
        self._config_path = folder / "server.properties"
        self._process: Process | None = None
        self._log_from = 0  # where this start's part of the log begins
        self.node_id = node_id
        self.host = host
        self.port = port
        self.proxied_port: int | None = None
        self.ports: dict[str, int] = {}
        self.data_dir = folder / "data"
        self.log_path = folder / "broker.log"
        self.properties = dict(properties)

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def move(self, port: int) -> None:
        """Make the broker serve its clients on another port, from the next start on."""
        before, self.port = self.address, port
        for name in ("listeners", "advertised.listeners"):
            self.properties[name] = self.properties[name].replace(
                f"PLAINTEXT://{before}", f"PLAINTEXT://{self.address}"
            )

    @property
    def running(self) -> bool:
        """True while the broker's process lives (paused or not)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The broker's process id.

        Raises:
            SandboxError: the broker is not running.
        """
        return self._running().pid

    def write_config(self) -> Path:
        """Write ``properties`` as the file that the broker reads."""
        self._config_path.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in self.properties.items()))
        return self._config_path

    def start(self, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the broker, with the data and the port that it had.

        Args:
            wait: True to return when it is ready; False to return at once.
            timeout_s: how long to wait.

        Raises:
            SandboxError: it runs already, ended while starting, or was not ready in time.
        """
        if self.running:
            raise SandboxError(f"broker {self.node_id} is running", "stop or kill it first")
        self._launch()
        if wait:
            self.wait_ready(timeout_s=timeout_s)

    def wait_ready(
        self, *, others: frozenset[int] = frozenset(), timeout_s: float = START_TIMEOUT_S
    ) -> probe.ClusterView:
        """Wait until the broker serves clients: it answers a Metadata request that lists itself and ``others`` as up.

        Raises:
            SandboxError: it ended, or was not ready in time; with an excerpt of its log.
        """
        deadline_at = time.monotonic() + timeout_s
        awaited = others | {self.node_id}
        last = "it does not listen"
        process = self._running()
        while time.monotonic() < deadline_at:
            code = process.poll()
            if code is not None:
                if not logs.mentions(self.log_path, _STALE_REGISTRATION, start=self._log_from):
                    raise self._failure(f"ended with exit code {code} while starting")
                time.sleep(1)
                process = self._launch()
            try:
                view = probe.metadata(self.port, timeout_s=2, host=self.host)
                if awaited <= view.brokers and view.controller_id is not None:
                    return view
                last = f"it sees brokers {sorted(view.brokers)}, controller {view.controller_id}"
            except (OSError, ValueError) as error:
                last = str(error)
            time.sleep(_ASK_EVERY_S)
        raise self._failure(f"was not ready after {timeout_s:.0f} s ({last})")

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the broker cleanly, as an operator would (SIGTERM); its data stay.

        The last broker of a KRaft cluster of three cannot stop cleanly: that needs a controller, and one is no quorum.

        Raises:
            SandboxError: it was not running, or did not end in time and was killed.
        """
        process = self._running()
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)  # a paused process could not end
        if process.wait(timeout_s) is None:
            self.kill()
            raise SandboxError(
                f"broker {self.node_id} did not stop within {timeout_s:.0f} s and was killed",
                "use kill() where it cannot stop cleanly: without a majority of the controllers, or too busy",
            )

    def kill(self) -> None:
        """End the broker at once (kill -9); its data stay as they are.

        Raises:
            SandboxError: it was not running.
        """
        process = self._running()
        process.signal(signal.SIGKILL)
        if process.wait(STOP_TIMEOUT_S) is None:
            raise self._failure("did not end after kill -9")

    def pause(self) -> None:
        """Freeze the broker (SIGSTOP): its connections stay open, but it does not answer.

        Raises:
            SandboxError: it was not running.
        """
        self._running().signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the broker go on after ``pause``.

        Raises:
            SandboxError: it was not running.
        """
        self._running().signal(signal.SIGCONT)

    def port_was_taken(self) -> bool:
        """Returns True if the broker ended because another process listens on its port."""
        return not self.running and logs.mentions(self.log_path, _PORT_TAKEN, start=self._log_from)

    def _launch(self) -> Process:
        self.write_config()
        self._log_from = logs.size(self.log_path)
        self._process = self._processes.spawn([*self._command, str(self._config_path)], self.log_path)
        return self._process

    def _running(self) -> Process:
        if self._process is None or self._process.poll() is not None:
            raise SandboxError(f"broker {self.node_id} is not running", "start it first")
        return self._process

    def _failure(self, what: str) -> SandboxError:
        return SandboxError(
            f"broker {self.node_id} {what}; from its log:\n{logs.excerpt(self.log_path, start=self._log_from)}",
            "look at the first error above; a property that was passed through may not suit this version",
        )

    def __repr__(self) -> str:
        return f"<broker {self.node_id} at {self.address}, {'up' if self.running else 'down'}>"


def _escaped(value: str) -> str:
    """Escapes a value for a Java properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
