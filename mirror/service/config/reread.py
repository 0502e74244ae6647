"""Reads the configuration again, for a supervisor that runs: in a process of its own, which ends with the answer.

The memory that reading takes (YAML, pydantic) would otherwise stay for as long as the service runs. Settings, and the
secrets among them, go over pipes.
"""

import json
import sys

from mirror.service.config.errors import ConfigError
from mirror.service.config.load import load
from mirror.service.config.resolve import supervision


def main() -> None:
    """Reads the question from stdin: the file, ``--workers`` and ``--fail-fast``. Writes the answer to stdout: the
    settings, or what is wrong with the file."""
    asked = json.load(sys.stdin)
    answer: dict[str, object]
    try:
        told = supervision(load(asked["config"]), workers=asked["workers"], fail_fast=asked["fail_fast"])
        answer = {"told": told.pack()}
    except ConfigError as error:
        answer = {"wrong": str(error)}
    json.dump(answer, sys.stdout)
