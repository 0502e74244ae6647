"""Options that several commands share, and how their values are resolved."""

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
    """A size, written as in the configuration: a number of bytes, or a number with a binary unit (32MiB)."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the size in bytes. A size below 1 is wrong usage."""
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
    """Returns the configuration. If it is wrong, prints the errors and exits with ``EXIT_CONFIG``."""
    from mirror.service.config import ConfigError
    from mirror.service.config import load as read

    try:
        return read(path)
    except ConfigError as error:
        fail(str(error), EXIT_CONFIG)


def chosen(config: "Config", name: str) -> "ResolvedFlow":
    """Returns the flow that ``--flow`` names, or the only one. It is wrong usage if that flow is not enabled, or if no
    flow is named and several are enabled."""
    from mirror.service.config import FlowNotChosen

    try:
        return config.enabled_flow(name)
    except FlowNotChosen as error:
        raise click.UsageError(str(error)) from error


class Running(NamedTuple):
    """The mirror that runs with a configuration.

    Attributes:
        address: host and port at which it listens.
        flows: the flows that the command is about, name -> id; empty: any flow.
        token: the token that the mirror requires for a change (``http.token``); empty: none is configured, or it is
            unknown.
    """

    address: tuple[str, int]
    flows: dict[str, str]
    token: str


def mirror_of(path: Path, at: str | None, name: str) -> Running:
    """Returns how to reach the mirror that runs with this configuration.

    If the file is wrong and ``at`` gives the address, the errors are only printed, since a running mirror must stay
    reachable for its operators. The flows and the token are unknown then. Without ``at``, exits with ``EXIT_CONFIG``.

    Args:
        path: the configuration file.
        at: the mirror's address, as HOST:PORT; None: that of ``http.listen``.
        name: the only flow that the command is about; empty: all enabled flows.
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
    """Prints the message and exits with ``EXIT_FAILED`` if the body raises a ``NetworkError`` or one of ``also``.

    Args:
        commands: the mirror's commands as they are typed here, for those that the message names.
        also: further types of exceptions that are expected.
    """
    from mirror.net.errors import NetworkError

    expected: tuple[type[Exception], ...] = (NetworkError, *also)
    try:
        yield
    except expected as error:
        fail(commands.rendered(str(error)), EXIT_FAILED)


@contextmanager
def adding(message: str) -> Iterator[None]:
    """Prints the message on stderr if the body exits (``SystemExit``): what the failure means for the mirror that
    runs."""
    try:
        yield
    except SystemExit:
        click.echo(message, err=True)
        raise


def terminal_width() -> int:
    """Returns the number of columns of the terminal; 0 if stdout is not a terminal, so that programs get whole
    lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def fail(message: str, code: int) -> NoReturn:
    """Prints the message on stderr and exits with the code."""
    click.echo(message, err=True)
    sys.exit(code)
