"""``mirror cutover``: moves consumer groups over to the destination, and prepares the way back."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror.cli.moving.options import GROUPS, NAMED, groups_of, named
from mirror.cli.options import AT, CONFIG, asking, fail, load, mirror_of
from mirror.service.exits import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from mirror.service.commands import Commands
    from mirror.service.config import Config, ResolvedFlow
    from mirror.service.cutover.certificate import Audit
    from mirror.service.cutover.command import Options
    from mirror.service.cutover.world import RealWorld


class Seconds(click.ParamType[float]):
    """A duration: 5s, 500ms, 2m, or a number of seconds."""

    name = "time"
    _UNITS = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0))

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns the duration in seconds. It is wrong usage unless it is above 0 and below 1e6."""
        if isinstance(value, float | int):
            return float(value)
        text, factor = value, 1.0
        for unit, seconds in self._UNITS:
            if value.endswith(unit):
                text, factor = value.removesuffix(unit), seconds
                break
        try:
            found = float(text) * factor
        except ValueError:
            found = 0.0
        if not 0 < found < 1e6:
            self.fail(f"{value!r} is no time above 0; write 5s, 500ms, 2m or a number of seconds", param, ctx)
        return found


@click.command()
@CONFIG
@AT
@NAMED
@GROUPS
@click.option(
    "--window", type=Seconds(), default="5s", show_default=True,
    help="The source's ends have to stand still for so long.",
)  # fmt: skip
@click.option(
    "--timeout",
    type=Seconds(),
    default="10m",
    show_default=True,
    help="The longest wait for what is still to be copied.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False),
    help="The folder for state, certificate and the audit's files. [default: cutover- and the flow's id]",
)  # fmt: skip
@click.option("--skip-audit", is_flag=True, help="Leave the audit out; the certificate says so.")
@click.option(
    "--accept-unproven", is_flag=True,
    help="Go on if the audit found no difference, but could not prove everything; the certificate says so.",
)  # fmt: skip
@click.option("--reverse", is_flag=True, help="After a cutover: prepare the way back, and write its configuration.")
@click.option(
    "--config-out", type=click.Path(path_type=Path, dir_okay=False),
    help="With --reverse: where that goes. [default: beside the configuration, as NAME.reverse.yaml]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Change nothing, and say what would be done.")
def cutover(
    path: Path,
    at: str | None,
    name: str,
    groups: tuple[str, ...],
    window: float,
    timeout: float,
    out: Path | None,
    reverse: bool,
    config_out: Path | None,
    dry_run: bool,
    **decided: bool,
) -> None:
    """Move over to the destination: check that the producers have stopped, wait until everything is copied, audit,
    carry the groups' offsets over, and write a certificate. Then it prints what to do next.

    It may be interrupted and run again at any time: it goes on where it was, and begins again if the source has moved.
    Stop the producers first, let the consumers read to the end, and stop them.

    With --reverse, once producers write to the destination: prepare a flow back, which copies only what was written
    since.

    Exit codes: 0 done, 1 not possible now, 2 a partition has halted, or the audit found a difference, 3 the audit could
    not prove everything.

    \b
        mirror cutover -c mirror.yaml --dry-run
        mirror cutover -c mirror.yaml --window 30s --timeout 1h
        mirror cutover -c mirror.yaml --reverse
    """
    import asyncio

    from mirror.service.commands import Commands
    from mirror.service.cutover.adopting import NotAdopted
    from mirror.service.cutover.command import Options, Refused
    from mirror.service.cutover.configuration import NotConfigured
    from mirror.service.cutover.files import InUse, only_one
    from mirror.service.cutover.state import StateUnreadable
    from mirror.service.offsets.translate import NotTranslated

    config = load(path)
    flow = named(config, name, disabled=reverse)
    if config_out is not None and not reverse:
        raise click.UsageError("--config-out is for --reverse")
    if reverse and groups:
        raise click.UsageError("--group is not for --reverse: groups move when the flow back is cut over")
    commands = replace(Commands.of(path), at=at or "", flow=flow.name)
    folder = out or Path(f"cutover-{flow.id.replace('->', '-')}")
    options = Options(window_s=window, timeout_s=timeout, groups=groups, version=_version(), **decided)
    run = _Run(
        path=path, at=at, config=config, flow=flow, commands=commands, groups=groups, folder=folder, options=options
    )
    try:
        with asking(commands, InUse, NotAdopted, NotConfigured, NotTranslated, StateUnreadable), ExitStack() as stack:
            if not dry_run:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(only_one(folder))
            if reverse:
                asyncio.run(run.reverse(config_out, dry_run=dry_run))
                sys.exit(EXIT_OK)
            sys.exit(asyncio.run(run.forward(dry_run=dry_run)))
    except Refused as error:
        fail(commands.rendered(str(error)), error.code)
    except OSError as error:
        fail(f"{error.filename or folder} cannot be written or read: {error.strerror}", EXIT_FAILED)


class _Run:
    """One invocation of the command."""

    def __init__(
        self,
        *,
        path: Path,
        at: str | None,
        config: "Config",
        flow: "ResolvedFlow",
        commands: "Commands",
        groups: tuple[str, ...],
        folder: Path,
        options: "Options",
    ) -> None:
        self._path = path
        self._at = at
        self._config = config
        self._flow = flow
        self._commands = commands
        self._groups = groups
        self._folder = folder
        self._options = options

    async def forward(self, *, dry_run: bool) -> int:
        """Cuts over, or with ``dry_run`` only tells what would be done. Returns the exit code."""
        from mirror.service.config import resolve
        from mirror.service.cutover.command import Cutover
        from mirror.service.cutover.next_steps import after_cutover

        bootstrap = resolve.flow_sides(self._flow).destination.bootstrap_servers
        async with self._world() as world:
            run = Cutover(world, self._options, self._folder, tell=self._tell)
            if dry_run:
                return await run.foresee()
            self._tell(f"state and certificate are in {self._folder.absolute()}")
            return await run.run(lambda data: after_cutover(data, self._commands, bootstrap, self._folder))

    async def reverse(self, config_out: Path | None, *, dry_run: bool) -> None:
        """Prepares the way back, or with ``dry_run`` only tells what would be done.

        Args:
            config_out: file for the configuration of the flow back; None: beside the configuration, as
                NAME.reverse.yaml.
            dry_run: True to change nothing.

        Raises:
            Refused: the flow cannot lead back (``offsets: mapped``, ``identity: strict``), there is no certificate, or
                the state of the clusters forbids it.
        """
        from mirror.service.config import resolve
        from mirror.service.cutover import configuration, failback
        from mirror.service.cutover.adopting import Adopting
        from mirror.service.cutover.command import Refused
        from mirror.service.cutover.next_steps import after_reverse
        from mirror.service.offsets.translate import Translator

        flow, into = self._flow, config_out or configuration.reverse_path(self._path)
        if flow.settings.offsets != "exact":
            raise Refused(
                f"flow {flow.name} has offsets: mapped: offsets differ, so there is no way back from the same places. "
                "Mirror back with a flow of its own into new topics"
            )
        if flow.settings.identity == "strict":
            raise Refused(
                f"flow {flow.name} has identity: strict: both clusters give out the same producer ids, and the former "
                "source would take batches of the one's producers for repeats of the other's. Mirror back with a flow "
                "of its own into new topics"
            )
        given = self._certified()
        name = configuration.reversed_name(flow.name)
        back = replace(flow, name=name, source=flow.destination, destination=flow.source)
        async with self._world() as world:
            failback.check_certificate(given, world.subject, skip_audit=self._options.skip_audit)
            found = await world.look()
        async with Translator(resolve.flow_sides(back).under("-cutover"), lazy=True) as translator:
            adopting = Adopting(
                translator, isolation_level=flow.settings.isolation_level, identity=flow.settings.identity
            )
            begun = await adopting.begun(name, given.rows.values())
            failback.check_logs(given.rows, found.rows, begun, missing=found.missing)
            warning = failback.check_at_rest(found, flow.name)
            await failback.prepare(
                adopting,
                name,
                given,
                configure=lambda flow_id: configuration.prepared(
                    self._path, into, flow.name, flow_id, given.rows.values()
                ),
                tell=self._tell,
                dry_run=dry_run,
                begun=begun,
            )
        if warning:
            self._tell(warning)
        if not dry_run:
            from mirror.service.commands import Commands

            for line in after_reverse(replace(Commands.of(into), flow=name), flow.name):
                self._tell(line)

    def _certified(self) -> Any:
        from mirror.service.cutover.certificate import FILE, CertificateUnreadable, certified
        from mirror.service.cutover.command import Refused
        from mirror.service.cutover.failback import Certified

        path = self._folder / FILE
        try:
            subject, rows, audit = certified(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise Refused(
                f"there is no {path}: the way back begins where a cutover ended. Name its folder with --out, or cut "
                "over first; if it was removed, `mirror cutover` writes it again"
            ) from error
        except (ValueError, CertificateUnreadable) as error:
            raise Refused(f"{path} is not the certificate of a cutover: {error}") from error
        return Certified(path=path, subject=subject, rows=rows, audit=audit)

    def _tell(self, text: str) -> None:
        click.echo(self._commands.rendered(text))

    def _world(self) -> "RealWorld":
        from mirror.service.config import resolve
        from mirror.service.cutover.world import RealWorld

        return RealWorld(
            resolve.flow_sides(self._flow),
            groups_of(self._flow, self._config, self._groups),
            self._commands,
            status=self._status(),
            audit=self._audit,
        )

    def _status(self) -> Callable[[], dict[str, Any]]:
        from mirror.service.cutover.world import NotRunning
        from mirror.service.http import client

        address = mirror_of(self._path, self._at, "").address
        flow = self._flow

        def ask() -> dict[str, Any]:
            try:
                return client.fetch_status(address, flows={flow.name: flow.id}, flow=flow.name)
            except client.NotAnswered as error:
                raise NotRunning(str(error)) from error

        return ask

    def _audit(self, out: Path) -> "Audit":
        """Runs ``mirror audit`` in a separate process, since Spark leaves a JVM running in the process that starts it.
        ``out``: folder for the audit's files."""
        from mirror.service.cutover.certificate import Audit

        command = [sys.executable, "-m", "mirror", "audit", "-c", str(self._path)]
        sys.stdout.flush()
        done = subprocess.run([*command, "--flow", self._flow.name, "--out", str(out)], check=False)
        try:
            verdict = str(json.loads((out / "summary.json").read_text(encoding="utf-8"))["verdict"])
        except (OSError, ValueError, KeyError):
            verdict = "not finished"
        return Audit(verdict, done.returncode if done.returncode >= 0 else EXIT_FAILED)


def _version() -> str:
    from importlib.metadata import version

    from mirror import DISTRIBUTION

    return version(DISTRIBUTION)
