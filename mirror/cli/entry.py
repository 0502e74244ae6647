"""The ``mirror`` command itself: the exit code of wrong usage, output that cannot be written, and sub-groups that are
imported only when they are used."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from mirror import DISTRIBUTION
from mirror.service.exits import EXIT_FAILED, EXIT_USAGE, in_words


@contextmanager
def _wrong_usage() -> Iterator[None]:
    """Exits with ``EXIT_USAGE`` on wrong usage: click's own code, 2, means a difference or a halted partition here."""
    try:
        yield
    except click.UsageError as error:
        error.show()
        raise click.exceptions.Exit(EXIT_USAGE) from error


class _StdoutFailed(OSError):
    """A write to stdout failed."""


class _Stdout(io.FileIO):
    """Stdout that raises ``_StdoutFailed``, so that its failures can be told from those of other files."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _StdoutFailed(error.errno, error.strerror) from error


def _watch_stdout() -> None:
    """Makes writes to stdout raise ``_StdoutFailed`` from now on. A closed stdout fails as well, and its descriptor is
    kept from being reused for another file."""
    from mirror.service.log.outlet import keep_standard_descriptors

    stream: Any = sys.stdout
    if stream is None:
        keep_standard_descriptors()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
    elif stream is not sys.__stdout__:
        return  # replaced by the caller, as in tests
    raw = _Stdout(1, "w", closefd=False)
    encoding, errors = ("utf-8", "strict") if stream is None else (stream.encoding, stream.errors)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=raw.isatty())


class _Main(click.Group):
    """Imports sub-groups only when they are used. Wrong usage of any command exits with ``EXIT_USAGE``, and output that
    cannot be written with ``EXIT_FAILED``."""

    def main(self, *args: Any, **extra: Any) -> Any:
        if "run" not in sys.argv[1:2]:  # the log of `run` reports lost output itself
            _watch_stdout()
        try:
            return super().main(*args, **extra)
        except _StdoutFailed as error:
            with suppress(OSError):
                click.echo(f"mirror: cannot write to stdout: {error.strerror}", err=True)
            # Drop the output that is still buffered: otherwise the flush at the interpreter's exit would fail as well.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(EXIT_FAILED)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _wrong_usage():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _wrong_usage():
            return super().invoke(ctx)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name == "sandbox":
            from mirror.sandbox.standing.cli import sandbox

            return sandbox
        if name == "demo":
            from mirror.demo.cli import demo

            return demo
        return super().get_command(ctx, name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "demo", "sandbox"])


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    from mirror.relay.hot.native import loop_form

    click.echo(f"mirror, version {version(DISTRIBUTION)}, inner loop {loop_form()}")
    ctx.exit()


@click.group(cls=_Main, epilog=in_words(), context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Copies Kafka topics to another cluster: raw batches, the same offsets, exactly once, with a proof."""
