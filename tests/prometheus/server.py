"""A Prometheus of the test's own: it scrapes one mirror every second, and evaluates the shipped rules."""

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.prometheus.tools import tool

PATIENCE_S = 60.0
LOOK_EVERY_S = 0.2


class Prometheus:
    """The server, on a free port of 127.0.0.1. A context manager that leaves no process behind."""

    def __init__(self, folder: Path, target: str, rules: Path) -> None:
        """``folder``: for its configuration and data. ``target``: host:port of the mirror."""
        self._folder = folder
        self._log = folder / "prometheus.log"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "mirror", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.json").write_text(json.dumps(config))

    def __enter__(self) -> Self:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    tool("prometheus"),
                    f"--config.file={self._folder / 'prometheus.json'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self.address}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        try:
            self.wait_for(self._ready, lambda: "its start")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    def wait_for(self, condition: Callable[[], bool], what: Callable[[], object]) -> None:
        """Until the condition holds, while the server lives."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._process.poll() is None, f"ended before {what()}: {self._log.read_text()[-2_000:]}"
            assert time.monotonic() < deadline, f"waited in vain for {what()}: {self._log.read_text()[-2_000:]}"
            time.sleep(LOOK_EVERY_S)

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """What an expression is now: labels and value of each series.

        Raises:
            HTTPError: it is no PromQL.
        """
        found = self._get("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def alerts(self) -> dict[str, str]:
        """Alert -> pending or firing, of those that are."""
        return {each["labels"]["alertname"]: each["state"] for each in self._get("alerts")["alerts"]}

    def rules(self) -> dict[str, str]:
        """Alert -> ok, or err if its expression cannot be evaluated; of those that were evaluated."""
        groups = self._get("rules")["groups"]
        return {each["name"]: each["health"] for group in groups for each in group["rules"]}

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]
