"""Configuration files for tests: a correct one with marked places, and a loader that checks the shape of messages."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from mirror.service.config import Config, ConfigError, load

# Lines count from 1: what a test puts in place of a @MARK stands in a line that the test can name.
BASE = """\
clusters:
  source:
    bootstrap.servers: "s:1"
    @CLUSTER
  destination: {bootstrap.servers: "d:2"}
flows:
  "source->destination":
    topics: [orders]
    @FLOW
@TOP
"""
CLUSTER, FLOW, TOP = 4, 9, 10
AT_CLUSTER, AT_FLOW = "clusters.source.", "flows.source->destination."


def base(*, cluster: str = "", flow: str = "", top: str = "") -> str:
    return BASE.replace("@CLUSTER", cluster).replace("@FLOW", flow).replace("@TOP", top)


class Load:
    """Writes a file and loads it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mirror.yaml"

    def __call__(self, text: str | bytes, env: Mapping[str, str] | None = None) -> Config:
        self.path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load(self.path, env or {})

    def errors(self, text: str | bytes, env: Mapping[str, str] | None = None) -> list[str]:
        """The messages, each of which must have the shape FILE:LINE: key: problem; remedy. Without FILE."""
        with pytest.raises(ConfigError) as caught:
            self(text, env)
        messages = str(caught.value).splitlines()
        assert [str(finding) for finding in caught.value.findings] == messages
        for message in messages:
            assert re.fullmatch(r".+:\d+: (the file |.+: ).+; .+", message), message
        return [message.removeprefix(f"{self.path}:") for message in messages]
