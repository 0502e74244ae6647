"""The commands that start and stop the service: through systemd if a ``mirror@`` unit runs this configuration,
otherwise as a process in the background."""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mirror.cli.formats import FORMAT, show
from mirror.cli.options import CONFIG, adding, fail, load
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK

if TYPE_CHECKING:
    from mirror.service.instance.background import Result
    from mirror.service.instance.place import Place
    from mirror.service.instance.units import Unit

START_S = 60.0
_NOT_RESTARTED = "not restarted: what runs goes on as it is"
_WORKERS = click.option(
    "--workers",
    type=click.IntRange(min=1, max=256),
    help="As of mirror run. Not with systemd, whose unit says how it runs.",
)
_START_WAIT = click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=START_S,
    show_default=True,
    help="Longest wait until it is ready. One that runs and is not ready by then is no failure. Not with systemd.",
)
_STOP_WAIT = click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    help="Longest wait for its end; it goes on stopping. By default as long as the drain may take (drain.timeout.ms), "
    "and a margin. With systemd, its unit says how long (TimeoutStopSec).",
)


@click.command()
@CONFIG
@_WORKERS
@_START_WAIT
@FORMAT
def start(path: Path, workers: int | None, timeout_s: float, shape: str) -> None:
    """Start the mirror in the background, unless it runs already. Returns once it is ready, or waits for a cluster, a
    topic or a right; it goes on by itself.

    If a systemd unit runs this configuration (mirror@NAME.service), it is `systemctl start`. Otherwise the mirror is a
    process of its own, which logs into a file. Two at once start one. It is refused while a `mirror run` that it has
    not started runs the same file.

    \b
        mirror start -c mirror.yaml
        mirror status -c mirror.yaml
        mirror stop -c mirror.yaml

    Exit codes: 0 it runs, 1 it could not be started, 78 the configuration is wrong.
    """
    from mirror.service.instance import background

    def by_hand(place: "Place", release: "Callable[[], None]") -> "Result":
        _checked(path)
        return background.start(place, path, _options(workers), timeout_s=timeout_s, answers=release)

    def by_systemd(place: "Place", unit: "Unit") -> "Result":
        if unit.is_active:
            return _of_unit(unit, "already running")
        background.refuse_others(place)
        unit.drive("start")
        return _of_unit(unit.again(), "started")

    _done(path, shape, timeout_s, by_hand, by_systemd, workers=workers)


@click.command()
@CONFIG
@_STOP_WAIT
@FORMAT
def stop(path: Path, timeout_s: float | None, shape: str) -> None:
    """Stop the mirror that `mirror start` has started, wait for the drain, and say what was drained. No record is lost
    by a stop that does not wait: the next start goes on where the destination ends.

    One that does not run is stopped already. It is refused for a `mirror run` that mirror start has not started.

    \b
        mirror stop -c mirror.yaml
        mirror stop -c mirror.yaml --timeout 5 || echo it still drains

    Exit codes: 0 it does not run, 1 it could not be stopped, or not everything was drained, 2 stopped, with halted
    partitions.
    """
    from mirror.service.instance import background

    def by_systemd(place: "Place", unit: "Unit") -> "Result":
        if not unit.is_active:
            return _of_unit(unit, "not running")
        begun_at = time.time()
        unit.drive("stop")
        return replace(_of_unit(unit.again(), "stopped"), pid=unit.pid, drained=unit.drained(since=begun_at))

    _done(path, shape, timeout_s, lambda place, _: background.stop(place, timeout_s=timeout_s), by_systemd)


@click.command()
@CONFIG
@_WORKERS
@_START_WAIT
@FORMAT
def restart(path: Path, workers: int | None, timeout_s: float, shape: str) -> None:
    """Stop the mirror, wait for the drain, and start it again. A wrong configuration is told before: the mirror then
    goes on as it is.

    Most changes of the configuration need no restart: see `mirror reload`.

    \b
        mirror restart -c mirror.yaml
        mirror restart -c mirror.yaml --workers 4

    Exit codes: 0 it runs, 1 it could not be stopped, or not be started, 78 the configuration is wrong, and nothing was
    stopped.
    """
    from mirror.service.instance import background
    from mirror.service.instance.place import Failed

    def by_hand(place: "Place", release: "Callable[[], None]") -> "Result":
        with adding(_NOT_RESTARTED):
            _checked(path)
        ended = background.stop(place, timeout_s=None)
        try:
            begun = background.start(place, path, _options(workers), timeout_s=timeout_s, answers=release)
        except Failed as error:
            raise Failed(f"it was stopped, and does not start again: {error}", error.code) from error
        return replace(begun, outcome="restarted" if ended.drained else "started", drained=ended.drained)

    def by_systemd(place: "Place", unit: "Unit") -> "Result":
        with adding(_NOT_RESTARTED):
            _checked(path)
        if not unit.is_active:
            background.refuse_others(place)
        begun_at = time.time()
        unit.drive("restart")
        drained = unit.drained(since=begun_at) if unit.is_active else None
        return replace(_of_unit(unit.again(), "restarted" if unit.is_active else "started"), drained=drained)

    _done(path, shape, START_S, by_hand, by_systemd, workers=workers)


def _done(
    path: Path,
    shape: str,
    wait_s: float | None,
    by_hand: "Callable[[Place, Callable[[], None]], Result]",
    by_systemd: "Callable[[Place, Unit], Result]",
    *,
    workers: int | None = None,
) -> NoReturn:
    """Runs a command while it holds the lock that these commands share, shows the result, and exits.

    Args:
        path: the configuration file.
        shape: the output format, one of ``SHAPES``.
        wait_s: longest wait for the lock; None: ``START_S``.
        by_hand: acts on a mirror in the background. It gets a function that releases the lock early.
        by_systemd: acts on the systemd unit that runs this configuration.
        workers: the value of ``--workers``, which is wrong usage if there is a unit; None: not given.
    """
    from mirror.service.instance.asking import Asked
    from mirror.service.instance.place import Failed, place_of
    from mirror.service.instance.units import unit_of

    if not path.exists():
        load(path)  # says so, and exits
    try:
        place = place_of(path)
        with place.locked(START_S if wait_s is None else wait_s) as release:
            # A mirror that was started by hand before the unit was installed still runs: the command is about that one.
            running = Asked.of(place)
            unit = unit_of(path) if running is None else None
            if running is not None:
                running.close()
            if unit is not None and workers:
                raise click.UsageError(f"{unit.name} says with how many workers it runs: set workers in {path}")
            result = by_hand(place, release) if unit is None else by_systemd(place, unit)
    except Failed as error:
        fail(str(error), error.code)
    data = {"config": str(path.absolute()), "unit": unit.name if unit is not None else None, **asdict(result)}
    show(shape, data, lambda _: as_text(data))
    drained = result.drained
    if drained is None or result.outcome != "stopped":
        sys.exit(EXIT_OK)
    sys.exit(EXIT_FAILED if not drained.get("drained", True) else EXIT_HALTED if drained.get("halted") else EXIT_OK)


def _checked(path: Path) -> None:
    """Exits if the configuration is wrong, before anything is started or stopped."""
    from mirror.service.config import resolve

    resolve.supervision(load(path), workers=None, fail_fast=False)


def _options(workers: int | None) -> list[str]:
    return [] if workers is None else ["--workers", str(workers)]


def _of_unit(unit: "Unit", outcome: str) -> "Result":
    from mirror.service.instance.background import Result

    told = unit.shown.get("StatusText") or None
    return Result(
        outcome=outcome,
        pid=unit.pid,
        log=f"journalctl -u {unit.name}",
        ready=told.startswith("ready") if told and unit.is_active else None,
        status=told or f"{unit.shown.get('ActiveState')} ({unit.shown.get('SubState')})",
    )


def as_text(data: dict[str, Any]) -> str:
    """Returns a result as text for people."""
    which = data["unit"] or "mirror"
    pid = f", process {data['pid']}" if data["pid"] and data["outcome"] != "stopped" else ""
    lines = [f"{which}: {data['outcome']}{pid}"]
    lines += [
        f"  {name + ':':10}{data[name]}"
        for name in ("status", "address", "log")
        if data[name] and (name == "log" or data["outcome"] not in ("stopped", "not running"))
    ]
    if data["drained"] is not None:
        lines.append(f"  drained:  {drain_text(data['drained'])}")
    return "\n".join(lines)


def drain_text(drained: dict[str, Any]) -> str:
    """Returns what a stop has drained, in words."""
    from mirror.service.telemetry.status import size_text

    all_sent = "all that was sent is acknowledged" if drained["drained"] else "not everything is acknowledged"
    pending = f" ({drained['pending']:,} batches are not)" if drained["pending"] else ""
    told = (
        f"{all_sent}{pending}; written after the last report before the stop: {drained['records']:,} records in "
        f"{drained['batches']:,} batches ({size_text(drained['bytes'])}); group offsets committed before it left: "
        f"{drained['committed']:,} of {drained['partitions']:,} partitions"
        + (", the rest while it left" if drained["committed"] < drained["partitions"] else "")
    )
    return told + (f"; {drained['halted']:,} halted" if drained["halted"] else "")
