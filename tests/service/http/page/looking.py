"""A mirror that has some of everything to show, and a browser that looks at it."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mirror.sandbox import SandboxCluster
from tests.prometheus.tools import browser
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.running import Mirror, cli, config_text, mirror, status

POLLS_MS = 21_000
"""Of the page's own time, which passes as fast as it has nothing to wait for: four times that it asks again."""
LOOK_S = 120
RATE = 30_000
"""Bytes a second: what there is to copy lasts for longer than a browser looks."""


class Seen(NamedTuple):
    """What a browser made of a page: its elements after scripts have run, and the lines of its console."""

    html: str
    complaints: list[str]


def looked_at(url: str, folder: Path, *options: str, polls_ms: int = POLLS_MS) -> Seen:
    """Opens a page in Chromium. ``folder``: for the browser's own files. ``options``: more of the browser's.
    ``polls_ms``: how long it stays open, of the page's own time."""
    program, environment = browser()
    told = subprocess.run(
        [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", f"--user-data-dir={folder / 'browser'}", "--enable-logging=stderr",
            f"--virtual-time-budget={polls_ms}", "--dump-dom", *options, url,
        ],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=LOOK_S,
    )  # fmt: skip
    return Seen(told.stdout, re.findall(r".*:CONSOLE.*", told.stderr))


@contextmanager
def some_of_everything(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic: str, folder: Path
) -> Iterator[Mirror]:
    """A mirror of three topics: one that lags, since it is held to a rate; one that somebody else writes to at the
    destination; and one that is paused."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config, halts, paused = folder / "mirror.yaml", f"{topic}-halts", f"{topic}-paused"
    for name, partitions, count in ((topic, 3, 30_000), (halts, 1, 10), (paused, 1, 10)):
        create_topic(source, name, partitions)
        produce(source, name, count, partitions=partitions)
    create_topic(destination, halts, 1)
    produce(destination, halts, 10, partitions=1, seed=1)
    flow = {"topic.max.bytes.per.second": {topic: RATE}}
    with mirror(config, config_text(source, destination, [topic, halts, paused], flow=flow)) as process:
        process.wait_event("halted", topic=halts)
        process.wait_for(lambda: status(process)["states"].get("active") == 4, "the copies")
        cli(process, config, "pause", paused)
        process.wait_event("paused", topic=paused)
        process.wait_for(lambda: status(process)["states"].get("paused") == 1, "the pause")
        yield process
