"""The command ``mirror demo``."""

import signal
import sys
from contextlib import closing
from pathlib import Path
from types import FrameType

import click

from mirror.demo.data.topics import parse_size
from mirror.demo.errors import DemoError
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK

__all__ = ["demo"]


class _Size(click.ParamType[int]):
    """A size in bytes, written as ``300MB`` or ``1.5G``."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except DemoError as error:
            self.fail(f"{error.problem}: {error.remedy}", param, ctx)


@click.command()
@click.option("--size", type=_Size(), default="300MB", show_default=True, help="How much to store before mirroring.")
@click.option("--keep", is_flag=True, help="Leave both clusters up at the end, until Ctrl-C.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Leave the audit's files in this folder: report.html, certificate.json and the findings.",
)
def demo(size: int, keep: bool, out: Path | None) -> None:
    """Mirror between two real Kafka clusters on this machine, and prove that the copy is identical.

    Starts both clusters, fills topics from librdkafka and Java producers (none, gzip, snappy, lz4, zstd), runs
    `mirror run` while they go on writing, then `mirror audit` over everything. Leaves nothing behind, but for the
    audit's files with --out.

    Exit codes: 0 identical, 1 could not finish, 2 a difference.

    \b
        mirror demo
        mirror demo --size 1GB --keep
        mirror demo --out /tmp/audit
    """
    from mirror.demo.demo import Demo, Options
    from mirror.demo.show.screen import open_screen
    from mirror.sandbox import SandboxError

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    screen = open_screen()
    with closing(screen):
        try:
            identical = Demo(Options(size=size, keep=keep, out=out and out.absolute()), screen).run()
        except (DemoError, SandboxError) as error:
            screen.close()
            click.echo(f"mirror demo: {error}", err=True)
            sys.exit(EXIT_FAILED)
        except KeyboardInterrupt:
            screen.close()
            click.echo("mirror demo: interrupted; everything it started has been ended and removed", err=True)
            sys.exit(EXIT_FAILED)
    sys.exit(EXIT_OK if identical else EXIT_HALTED)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Treats SIGTERM and SIGHUP (a closed terminal) like Ctrl-C."""
    raise KeyboardInterrupt
