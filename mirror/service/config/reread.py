"""Reads the configuration again for a running supervisor, in a separate process that ends afterwards.

Otherwise the memory that reading takes (YAML, pydantic) would stay in use for as long as the service runs. Settings,
including secrets, go over pipes.
"""

import json
import sys

from mirror.service.config.errors import ConfigError
from mirror.service.config.load import load
from mirror.service.config.resolve import supervision


def main() -> None:
    """Reads the request from stdin: the file, ``--workers`` and ``--fail-fast``. Writes the answer to stdout: the
    settings, or the findings in the file."""
    asked = json.load(sys.stdin)
    answer: dict[str, object]
    try:
        told = supervision(load(asked["config"]), workers=asked["workers"], fail_fast=asked["fail_fast"])
        answer = {"told": told.pack()}
    except ConfigError as error:
        answer = {"wrong": str(error)}
    json.dump(answer, sys.stdout)
