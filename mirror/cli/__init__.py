"""The command line. Each command imports what it needs when it is called: the daemon never loads Spark."""

from mirror.cli.auditing import audit
from mirror.cli.configuration import completion, config, validate
from mirror.cli.describing import describe
from mirror.cli.entry import main
from mirror.cli.groups import offsets, sync
from mirror.cli.partitions import pause, resume
from mirror.cli.planning import plan
from mirror.cli.running import reload, run, status

__all__ = ["main"]

for command in (audit, completion, config, describe, offsets, pause, plan, reload, resume, run, status, sync, validate):
    main.add_command(command)
