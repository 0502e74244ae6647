"""``mirror audit`` in this process, with the Spark session that its tests share. Starting one takes longer than most
audits; ``tests/demo``, ``tests/service/runs/test_secured.py`` and ``test_last_audit.py`` run the command as it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mirror.audit import command
from mirror.audit.command import audit_flow
from mirror.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["audited"]


def audited(spark: SparkSession, config: Path, *options: str) -> tuple[int, str]:
    """Returns the exit code of ``mirror audit -c config`` with more options, and what it prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "audit_flow", partial(audit_flow, spark=spark))
        done = CliRunner().invoke(main, ["audit", "-c", str(config), *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output
