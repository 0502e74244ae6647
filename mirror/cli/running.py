"""``mirror run``, and ``mirror status`` and ``mirror reload`` of a mirror that runs."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from mirror.cli.formats import FORMAT, show
from mirror.cli.options import AT, CONFIG, ONLY_FLOW, adding, fail, load, mirror_of
from mirror.service.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_HALTED, EXIT_OK

if TYPE_CHECKING:
    from mirror.service.telemetry.status import Status

NARROW, LONG = 80, 1_000
"""Columns and lines of ``status --watch`` if stdout is not a terminal."""


@click.command()
@CONFIG
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=256),
    help="Number of worker processes that flows share. Overrides the key workers at the top.",
)
@click.option(
    "--fail-fast",
    is_flag=True,
    help="For scripts: do not wait. Exit with code 1 at the first obstacle to starting, and with 2 once every "
    "partition has halted.",
)
@click.option("--background", is_flag=True, hidden=True, help="Of mirror start: it has a control socket.")
def run(path: Path, workers: int | None, fail_fast: bool, background: bool) -> None:
    """Mirror in the foreground until SIGTERM or SIGINT; a second signal does not wait for the drain.

    What can heal is waited for: a cluster that cannot be reached, a pattern that no topic matches yet, a missing right.
    A second machine that runs the same configuration joins: the partitions are shared out among all workers. SIGHUP
    reloads the configuration: flows are added, removed and restarted, and those that did not change go on untouched.

    \b
        mirror run -c mirror.yaml
        mirror run -c mirror.yaml --workers 4

    Exit codes: 0 stopped as told, 1 it could not run, or not everything was drained, 2 stopped as told, with halted
    partitions, 78 the configuration is wrong.
    """
    from mirror.service import first

    first.hold_signals()
    from mirror.service import program
    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.instance import announcing, place
    from mirror.service.log.outlet import keep_standard_descriptors

    keep_standard_descriptors()
    told = resolve.supervision(load(path), workers=workers, fail_fast=fail_fast)
    if workers and all(flow.own_workers for flow in told.flows):
        raise click.UsageError("--workers is for flows that share workers, and here each has workers of its own")
    kept = announcing.announce(path)
    try:
        control = str(place.place_of(path).folder) if background else ""
        program.become(told, commands=Commands.of(path), control=control)
    except place.Failed as error:
        fail(str(error), error.code)
    finally:
        if kept is not None:  # only reached if the supervisor was not started: become() does not return
            kept.close()


@click.command()
@CONFIG
@AT
@ONLY_FLOW
@FORMAT
@click.option("--watch", is_flag=True, help="Show it live, until Ctrl-C: lag, rates, halted partitions.")
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Of --watch, in seconds."
)
def status(path: Path, at: str | None, name: str, shape: str, watch: bool, interval: float) -> None:
    """Show the state of the mirror that runs here with this configuration: partitions, lag, halts, workers. Of all its
    flows, or with --flow of one.

    POSITION is the source offset up to which a partition is copied: a restart goes by that. COMMITTED is what the
    flow's consumer group has of it at the source, for tools that watch groups. AGE is how long the oldest record that
    is not copied is known to wait.

    Exit codes: 0 all is well, 1 no mirror answers or it is not ready, 2 a partition is halted.

    \b
        mirror status -c mirror.yaml
        mirror status -c mirror.yaml --watch
        mirror status -c mirror.yaml --format json | jq .lag_records
    """
    from mirror.service.http import client
    from mirror.service.telemetry.status import as_text

    if watch and shape != "table":
        raise click.UsageError(f"--watch has a table of its own: it does not go with --format {shape}")
    address, flows, _ = mirror_of(path, at, name)
    if watch:
        try:
            _watch(lambda: client.fetch_status(address, flows=flows, flow=name), interval)
        except KeyboardInterrupt:
            sys.exit(EXIT_OK)
    try:
        now = client.fetch_status(address, flows=flows, flow=name)
    except client.NotAnswered as error:
        fail(str(error), EXIT_FAILED)
    show(shape, now, lambda width: as_text(now, width=width))
    if any(one["reason"] for one in now["partitions"]):
        sys.exit(EXIT_HALTED)
    sys.exit(EXIT_OK if now["ready"] else EXIT_FAILED)


@click.command()
@CONFIG
@AT
def reload(path: Path, at: str | None) -> None:
    """Have the mirror that runs here read its configuration again, as SIGHUP does, and say what changes.

    A wrong configuration changes nothing. Flows that it does not change are not touched. The file is the one that the
    mirror was started with; -c says at which address it listens.

    Exit codes: 0 reloaded, 1 no mirror answers, 78 the configuration is wrong.

    \b
        mirror reload -c mirror.yaml
    """
    from mirror.service.http import client

    with adding("not reloaded: the mirror goes on under the former configuration"):
        load(path)
        running = mirror_of(path, at, "")
    try:
        changed = client.reload(running.address, token=running.token)
    except client.NotAnswered as error:
        fail(str(error), EXIT_FAILED)
    except client.NotAllowed as error:
        fail(f"not reloaded: {error}", EXIT_FAILED)
    except client.NotDone as error:
        fail(f"not reloaded: {error}", EXIT_CONFIG)
    if changed is None:
        from mirror.service.http.routes import RELOAD_S

        click.echo(
            f"the reload was not finished within {RELOAD_S:.0f} s and goes on; the log says `reloaded` or "
            "`not_reloaded`"
        )
        return
    for what, names in changed.items():
        if names and what != "need_restart":
            click.echo(f"{what}: {', '.join(names)}")
    if changed["need_restart"]:
        click.echo(f"changed, but not in effect until the service is restarted: {', '.join(changed['need_restart'])}")


def _watch(fetch: "Callable[[], Status]", interval_s: float) -> NoReturn:
    """Shows the status every ``interval_s`` seconds, until KeyboardInterrupt. While the mirror does not answer, shows
    the error instead."""
    from mirror.cli.live import as_screen
    from mirror.service.http import client

    before: Status | None = None
    is_terminal = sys.stdout.isatty()
    while True:
        columns, lines = shutil.get_terminal_size() if is_terminal else (NARROW, LONG)
        try:
            now = fetch()
            screen = as_screen(now, before, width=columns, height=lines)
            before = now
        except client.NotAnswered as error:
            screen = [str(error)]
        if is_terminal:
            click.clear()
        click.echo("\n".join(screen) + ("" if is_terminal else "\n"))
        time.sleep(interval_s)
