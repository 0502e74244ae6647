"""``mirror run`` as a system to measure: a real process with the configuration that an operator would write."""

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
"""The event in its log: the supervisor starts another worker, which the figures would not show."""

WHOLE = Window(longest_s=10.0)
"""From the first data at the destination until all is there, or for 10 s: there is as much data as a JVM needs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mirror:
    """See ``copying.Copier``.

    Attributes:
        flow: further settings of its flow; none in a complete run, which measures the defaults.
        http: the address at which it shows its state; any that is free by default.
    """

    flow: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    http: str = "127.0.0.1:0"
    name: str = "mirror"
    window: Window = WHOLE
    supervises: bool = True
    everywhere: bool = True

    def command(self, job: Job, programs: Programs) -> list[str]:
        """Write its configuration; returns the command that runs it."""
        path = programs.write("mirror.yaml", json.dumps(config(job, self.flow) | {"http.listen": self.http}, indent=2))
        return [str(Path(sys.executable).with_name("mirror")), "run", "--fail-fast", "-c", str(path)]

    def end(self, program: Program) -> None:
        """Stop it as an operator would.

        Raises:
            BenchError: its exit code is not 0, it did not end in time, or one of its workers had died.
        """
        code = program.stop()
        died = [line for line in program.log_path.read_text(errors="replace").splitlines() if DIED in line]
        if died:
            raise program.failure(f"lost a worker, and with it its CPU and its memory: {died[0]}")
        if code != 0:
            raise program.failure("did not stop in time" if code is None else f"stopped with exit code {code}")


def config(job: Job, flow: Mapping[str, Any]) -> dict[str, Any]:
    """Returns its whole configuration. (JSON is YAML.)"""
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(job.ca)}
    return {
        "clusters": {
            side: {"bootstrap.servers": servers} | (tls if side in job.tls else {})
            for side, servers in (("source", job.source), ("destination", job.destination))
        },
        "flows": {"source->destination": {"topics": [re.escape(job.topic)], **flow}},
        "http.listen": "127.0.0.1:0",
    }
