"""``mirror run`` as a system that is measured: a real process, with a configuration as an operator would write it."""

import dataclasses
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.copiers.copying import Job
from bench.copiers.programs import Program, Programs
from bench.measure import Window

__all__ = ["Mirror", "config"]

DIED = "worker_died"
"""Event in the log after which the supervisor starts another worker. The figures would not show that."""

WHOLE = Window(longest_s=10.0)
"""From the first data at the destination until everything is copied, or for 10 s: there may be as much data as a JVM
needs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mirror:
    """Mirror as a copier; see ``copying.Copier``.

    Attributes:
        flow: further settings of its flow. A complete run has none, since it measures the defaults.
        http: address of its HTTP server; by default any free port.
    """

    flow: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    http: str = "127.0.0.1:0"
    name: str = "mirror"
    window: Window = WHOLE
    supervises: bool = True
    everywhere: bool = True

    def command(self, job: Job, programs: Programs) -> list[str]:
        """Writes the configuration, and returns the command that runs it."""
        path = programs.write("mirror.yaml", json.dumps(config(job, self.flow) | {"http.listen": self.http}, indent=2))
        return [str(Path(sys.executable).with_name("mirror")), "run", "--fail-fast", "-c", str(path)]

    def end(self, program: Program) -> None:
        """Stops it as an operator would (SIGTERM).

        Raises:
            BenchError: its exit code is not 0, it did not end in time, or one of its workers has died.
        """
        code = program.stop()
        died = [line for line in program.log_path.read_text(errors="replace").splitlines() if DIED in line]
        if died:
            raise program.failure(f"lost a worker, and with it its CPU and its memory: {died[0]}")
        if code != 0:
            raise program.failure("did not stop in time" if code is None else f"stopped with exit code {code}")


def config(job: Job, flow: Mapping[str, Any]) -> dict[str, Any]:
    """Returns mirror's whole configuration, to be written as JSON, which is YAML. ``flow``: further settings of its
    flow."""
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(job.ca)}
    return {
        "clusters": {
            side: {"bootstrap.servers": servers} | (tls if side in job.tls else {})
            for side, servers in (("source", job.source), ("destination", job.destination))
        },
        "flows": {"source->destination": {"topics": [re.escape(job.topic)], **flow}},
        "http.listen": "127.0.0.1:0",
    }
