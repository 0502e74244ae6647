"""The command line. Each command imports what it needs when it is called: the daemon never loads Spark."""

from mirror.cli.auditing import audit
from mirror.cli.configuration import completion, config, validate
from mirror.cli.describing import describe
from mirror.cli.entry import main
from mirror.cli.groups import offsets, sync
from mirror.cli.lifecycle.verbs import restart, start, stop
from mirror.cli.moving.cutover import cutover
from mirror.cli.partitions import pause, resume
from mirror.cli.planning import plan
from mirror.cli.running import reload, run, status
from mirror.cli.tracing.command import trace

__all__ = ["main"]

for command in (
    audit, completion, config, cutover, describe, offsets, pause, plan, reload, restart, resume, run, start, status,
    stop, sync, trace, validate,
):  # fmt: skip
    main.add_command(command)
