"""Options that several commands have, and what they stand for."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from mirror.service.exits import EXIT_CONFIG, EXIT_FAILED

if TYPE_CHECKING:
    from mirror.service.commands import Commands
    from mirror.service.config import Config, ResolvedFlow


class Bytes(click.ParamType[int]):
    """A size as the configuration has them: a number of bytes, or one with a binary unit (32MiB)."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the bytes, at least 1."""
        from mirror.service.config.kinds import parse_size

        size = value if isinstance(value, int) else parse_size(value)
        if size is None or size < 1:
            self.fail(f"{value!r} is no size of at least one byte; write 33554432, 32768KiB or 32MiB", param, ctx)
        return size


CONFIG = click.option(
    "-c",
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The configuration file (YAML); mirror config reference lists every key.",
)

AT = click.option(
    "--at",
    metavar="HOST:PORT",
    help="The mirror's address, if http.listen has port 0, or was changed since the mirror was started.",
)

FLOW = click.option(
    "--flow", "name", metavar="NAME", default="", help="The flow; required if the configuration has several."
)
ONLY_FLOW = click.option("--flow", "name", metavar="NAME", default="", help="Only this flow; all by default.")


def load(path: Path) -> "Config":
    """Reads the configuration, or exits with ``EXIT_CONFIG`` and what is wrong with it."""
    from mirror.service.config import ConfigError
    from mirror.service.config import load as read

    try:
        return read(path)
    except ConfigError as error:
        fail(str(error), EXIT_CONFIG)


def chosen(config: "Config", name: str) -> "ResolvedFlow":
    """Returns the flow that a command is about: the one that ``--flow`` names, or the only one."""
    from mirror.service.config import FlowNotChosen

    try:
        return config.enabled_flow(name)
    except FlowNotChosen as error:
        raise click.UsageError(str(error)) from error


class Running(NamedTuple):
    """The mirror that runs with a configuration.

    Attributes:
        address: host and port at which it listens.
        flows: those of its flows that matter: name -> id.
        token: what it wants to be shown before it changes something (``http.token``); empty: nothing.
    """

    address: tuple[str, int]
    flows: dict[str, str]
    token: str


def mirror_of(path: Path, at: str | None, name: str) -> Running:
    """Returns the mirror of this configuration. ``name``: the only flow that matters; empty: all.

    A file that is wrong does not hinder whoever looks after a mirror that runs, if its address is given with ``at``:
    then any flow matters, and no token is known.
    """
    from mirror.service.config import ConfigError
    from mirror.service.config import load as read

    try:
        config = read(path)
    except ConfigError as error:
        if at is None:
            fail(f"{error}\na mirror that runs can be asked without the file: give its address with --at", EXIT_CONFIG)
        click.echo(f"{error}\nthe mirror at {at} is asked all the same", err=True)
        return Running(_address(at), {}, "")
    wanted = (chosen(config, name),) if name else config.enabled_flows()
    flows = {flow.name: flow.id for flow in wanted}
    token = config.http_token.value
    return Running(config.http_listen if at is None else _address(at), flows, token)


def _address(at: str) -> tuple[str, int]:
    host, _, port = at.rpartition(":")
    if not port.isdecimal():
        raise click.UsageError(f"{at} is not host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def asking(commands: "Commands", *also: type[Exception]) -> Iterator[None]:
    """Exits with ``EXIT_FAILED`` and what is wrong if a cluster does not answer what is asked here, or for an error of
    the kinds ``also``. ``commands``: how those in the message are typed here."""
    from mirror.net.errors import NetworkError

    expected: tuple[type[Exception], ...] = (NetworkError, *also)
    try:
        yield
    except expected as error:
        fail(commands.rendered(str(error)), EXIT_FAILED)


@contextmanager
def adding(message: str) -> Iterator[None]:
    """Says it on stderr, too, if what is done here exits with an error: what that error means for what runs."""
    try:
        yield
    except SystemExit:
        click.echo(message, err=True)
        raise


def terminal_width() -> int:
    """Returns the columns of the terminal that stdout is; 0 if it is none: for programs, lines stay whole."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def fail(message: str, code: int) -> NoReturn:
    """Says it on stderr and exits."""
    click.echo(message, err=True)
    sys.exit(code)
