"""The command line. Each command imports what it needs when it is called: the daemon never loads Spark."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mirror import DISTRIBUTION
from mirror.service.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_HALTED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from mirror.service.config import ClusterSettings, Config, ResolvedFlow


CONFIG = click.option(
    "-c",
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The configuration file (YAML); mirror config reference lists every key.",
)

AT = click.option("--at", metavar="HOST:PORT", help="The mirror's address, if http.listen has port 0.")


FLOW = click.option(
    "--flow", "name", metavar="NAME", default="", help="The flow, if the configuration has several that are enabled."
)


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


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Copies Kafka topics to another cluster: raw batches, the same offsets, exactly once, with a proof.

    Exit codes: 0 success; 1 it failed, or the mirror is not ready; 2 a difference, or a halted partition; 3 the audit
    found no difference, but could not prove everything; 64 wrong usage; 78 the configuration is wrong.
    """


@main.command()
@CONFIG
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=256),
    help="Worker processes that flows share; takes precedence over the key workers at the top.",
)
@click.option(
    "--fail-fast",
    is_flag=True,
    help="For scripts, instead of waiting: end with exit code 1 at the first thing that keeps it from starting, with 2 "
    "once every partition has halted.",
)
def run(path: Path, workers: int | None, fail_fast: bool) -> None:
    """Mirror in the foreground until SIGTERM or SIGINT; a second signal does not wait for the drain.

    What can heal is waited for: a cluster that cannot be reached, a pattern that no topic matches yet, a missing right.
    A second machine that runs the same configuration joins: the partitions are shared out among all workers. SIGHUP
    reloads the configuration: flows are added, removed and restarted, and those that did not change go on untouched.
    """
    from mirror.service import supervisor
    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.log.outlet import keep_standard_descriptors

    keep_standard_descriptors()
    told = resolve.supervision(_load(path), workers=workers, fail_fast=fail_fast)
    if workers and all(flow.own_workers for flow in told.flows):
        raise click.UsageError("--workers is for flows that share workers, and here each has workers of its own")
    supervisor.become(told, commands=Commands.of(path))


@main.command()
@CONFIG
@AT
@FLOW
@click.option("--format", "shape", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(path: Path, at: str | None, name: str, shape: str) -> None:
    """Show the state of the mirror that runs here with this configuration: partitions, lag, halts, workers. Of all its
    flows, or with --flow of one.

    Exit codes: 0 all is well, 1 no mirror answers or it is not ready, 2 a partition is halted.
    """
    import json

    from mirror.service.http import client
    from mirror.service.telemetry.status import as_text

    try:
        address, flows = _mirror_of(path, at, name)
        now = client.fetch_status(address, flows=flows, flow=name)
    except client.NotAnswered as error:
        _fail(str(error), EXIT_FAILED)
    click.echo(json.dumps(now, indent=2) if shape == "json" else as_text(now), nl=shape == "json")
    if any(one["reason"] for one in now["partitions"]):
        sys.exit(EXIT_HALTED)
    sys.exit(EXIT_OK if now["ready"] else EXIT_FAILED)


@main.group()
def partition() -> None:
    """Act on partitions of the mirror that runs here."""


@partition.command()
@CONFIG
@AT
@FLOW
@click.argument("topic", required=False)
@click.argument("number", metavar="[PARTITION]", type=click.IntRange(min=0), required=False)
@click.option("--all", "everything", is_flag=True, help="Every halted partition.")
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Skip what the source has deleted or lacks, this once; the halt's remedy says what that means there.",
)
@click.option(
    "--accept-unproven",
    is_flag=True,
    help="Take what stands at the destination for a copy of the source, or a flow the other way for one that has "
    "ended, though nothing shows it, this once.",
)
@click.option(
    "--accept-settings",
    is_flag=True,
    help="Continue a copy that was made under another isolation.level, from here on under the current one.",
)
def resume(
    path: Path,
    at: str | None,
    name: str,
    topic: str | None,
    number: int | None,
    everything: bool,
    **accepted: bool,
) -> None:
    """Resume halted partitions, once their reason is dealt with: one, those of a topic, or --all.

    Exit codes: 0 all of them are resumed, 1 none of them, 2 some are still halted.
    """
    from mirror.service.http import client

    if everything is (topic is not None):
        raise click.UsageError("give TOPIC, TOPIC and PARTITION, or --all")
    accept = [each for each, wanted in accepted.items() if wanted]
    try:
        address, flows = _mirror_of(path, at, name)
        found = client.resume(address, topic, number, accept=accept, flows=flows, flow=name)
    except (client.NotAnswered, client.NotDone) as error:
        _fail(f"nothing is resumed: {error}" if isinstance(error, client.NotDone) else str(error), EXIT_FAILED)
    for each in found.outcomes:
        which = f"{each.flow}: {each.topic}-{each.partition}" if each.flow else f"{each.topic}-{each.partition}"
        said = f"{which} is not resumed: {each.why_not}" if each.why_not else f"{which} is resumed"
        click.echo(said, err=bool(each.why_not))
    if found.elsewhere:
        names = ", ".join(f"{topic}-{index}" for topic, index in found.elsewhere)
        why = (
            "nobody may hold them now, and a halt stays as it is: see `mirror status`, resume them once they are held"
            if found.nobody
            else "ask where they are copied"
        )
        click.echo(f"no worker here has {names}: {why}", err=True)
    if not found.outcomes and not found.elsewhere:
        click.echo("nothing is halted")
    failed = sum(bool(each.why_not) for each in found.outcomes)
    if found.elsewhere and not found.outcomes:
        sys.exit(EXIT_FAILED)
    if failed == len(found.outcomes) and (failed or number is not None):
        sys.exit(EXIT_FAILED)
    sys.exit(EXIT_HALTED if failed else EXIT_OK)


@main.command()
@CONFIG
@FLOW
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write findings and coverage to this folder, as Parquet and JSON.",
)
@click.option("--digest", type=click.Choice(["xxh3_128", "sha256"]), default="xxh3_128", show_default=True)
@click.option("--limit", type=click.IntRange(min=0), help="Findings shown on the terminal.")
@click.option("--master", metavar="URL", help="A Spark cluster, as spark-submit takes it; by default this machine.")
@click.option("--conf", metavar="KEY=VALUE", multiple=True, help="A setting for --master, as spark-submit takes it.")
def audit(
    path: Path,
    name: str,
    out: Path | None,
    digest: str,
    limit: int | None,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Read both clusters and prove that the bytes are identical, or name each place where they are not.

    Exit codes: 0 identical, 1 could not finish, 2 a difference, 3 no difference, but something that cannot be proved
    any more (audit.accept).
    """
    from mirror.audit.command import audit_flow
    from mirror.audit.model import AuditRequest, Endpoint
    from mirror.service.commands import Commands

    config = _load(path)
    flow = _chosen(config, name)

    def endpoint(alias: str, settings: "ClusterSettings") -> Endpoint:
        return Endpoint(
            alias=alias,
            bootstrap=tuple((address.host, address.port) for address in settings.bootstrap_servers),
            client_id=f"{settings.client_id}-audit",
            request_timeout_s=settings.request_timeout_ms / 1000,
            security=settings.security,
        )

    here, _, there = flow.name.partition("->")
    request = AuditRequest(
        flow=flow.id,
        source=endpoint(here, flow.source),
        destination=endpoint(there, flow.destination),
        topics=flow.settings.selection.names,
        selects=flow.settings.selects,
        digest=digest,
        isolation_level=flow.settings.isolation_level,
        fill=flow.settings.fill,
        offsets=flow.settings.offsets,
        rename=flow.settings.selection.destination_of,
        accept=frozenset(flow.settings.audit_accept),
    )
    sys.exit(
        audit_flow(
            request,
            out=out,
            limit=limit,
            typed=replace(Commands.of(path), flow=name).rendered,
            master=master,
            conf=_spark_conf(master, conf),
        )
    )


def _spark_conf(master: str | None, given: tuple[str, ...]) -> dict[str, str]:
    """Parses the ``KEY=VALUE`` settings of ``--conf``."""
    wrong = [each for each in given if "=" not in each]
    if wrong:
        raise click.BadParameter(f"{wrong[0]} is not KEY=VALUE", param_hint="--conf")
    if given and master is None:
        raise click.UsageError("--conf is for a Spark cluster: name it with --master")
    return dict(each.split("=", 1) for each in given)


@main.group()
def config() -> None:
    """Print the files that come with this version: an example, every key, alert rules."""


@config.command()
def example() -> None:
    """Print the smallest configuration that works."""
    click.echo(_shipped("example"), nl=False)


@config.command()
def reference() -> None:
    """Print a configuration with every key, its default, unit and meaning."""
    click.echo(_shipped("reference"), nl=False)


@config.command()
def alerts() -> None:
    """Print alert rules for Prometheus."""
    click.echo(_shipped("alerts"), nl=False)


def _shipped(name: str) -> str:
    from importlib.resources import files

    return (files("mirror") / "configs" / f"{name}.yaml").read_text(encoding="utf-8")


@main.command()
@CONFIG
def validate(path: Path) -> None:
    """Check the configuration file, without connecting to anything."""
    for flow in _load(path).enabled_flows():
        click.echo(f"{path}: flow {flow.name} is valid")


@main.command()
@CONFIG
@FLOW
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic, by its name at the source.")
@click.option("--format", "shape", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--all", "everything", is_flag=True, help="Show every row and every topic, also those that are well.")
@click.option(
    "--sample-bytes",
    type=click.IntRange(min=1),
    default=32 << 20,
    show_default=True,
    help="About how much is read of the source, to look at batches and to measure.",
)
@click.option(
    "--fix",
    is_flag=True,
    help="Do what is safe: create topics and add partitions as the mirror would, raise max.message.bytes, set "
    "compression.type and message.timestamp.type of destination topics that hold no record.",
)
@click.option("--dry-run", is_flag=True, help="With --fix: only show what it would do.")
def plan(
    path: Path, name: str, topics: tuple[str, ...], shape: str, everything: bool, sample_bytes: int, fix: bool,
    dry_run: bool,
) -> None:  # fmt: skip
    """Before the first byte: ask both clusters what would be copied, created and refused, and what it would take.

    Nothing is changed without --fix, and a mirror that runs is not disturbed.

    Exit codes: 0 nothing is refused, 1 something could not be asked, 2 some partition would halt, or nothing be copied.
    """
    from mirror.service.commands import Commands
    from mirror.service.plan import command

    if dry_run and not fix:
        raise click.UsageError("--dry-run is for --fix")
    config = _load(path)
    try:
        code = command.plan(
            config,
            Commands.of(path),
            flows=[_chosen(config, name)] if name else config.enabled_flows(),
            topics=topics,
            sample_bytes=sample_bytes,
            shape=shape,
            everything=everything,
            fix=fix,
            dry_run=dry_run,
            tell=click.echo,
        )
    except command.NotMirrored as error:
        raise click.BadParameter(str(error), param_hint="--topic") from error
    except command.NotPlanned as error:
        _fail(str(error), error.code)
    sys.exit(code)


def _mirror_of(path: Path, at: str | None, name: str) -> tuple[tuple[str, int], dict[str, str]]:
    """Returns the (host, port) at which the mirror of this configuration listens, and its flows: name -> id.
    ``name``: the only one of them that matters; empty: all."""
    config = _load(path)
    chosen = (_chosen(config, name),) if name else config.enabled_flows()
    flows = {flow.name: flow.id for flow in chosen}
    if at is None:
        return config.http_listen, flows
    host, _, port = at.rpartition(":")
    if not port.isdecimal():
        raise click.UsageError(f"{at} is not host:port")
    return (host.strip("[]") or "127.0.0.1", int(port)), flows


def _chosen(config: "Config", name: str) -> "ResolvedFlow":
    """Returns the flow that a command is about: the one that ``--flow`` names, or the only one."""
    from mirror.service.config import FlowNotChosen

    try:
        return config.enabled_flow(name)
    except FlowNotChosen as error:
        raise click.UsageError(str(error)) from error


@main.group()
def offsets() -> None:
    """Translate offsets between source and destination (offsets: mapped)."""


@offsets.command()
@CONFIG
@FLOW
@click.option("--topic", help="The topic, by its name at the source.")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--offset", type=click.IntRange(min=0), help="The offset to translate.")
@click.option(
    "--direction",
    type=click.Choice(["source-to-destination", "destination-to-source"]),
    help="[default: source-to-destination; of a group, nothing else]",
)
@click.option(
    "--group",
    help="Translate all offsets that this consumer group has committed at the source, and say what --apply commits.",
)
@click.option(
    "--apply", is_flag=True, help="With --group: commit them at the destination, for a group that is idle there."
)
def translate(
    path: Path,
    name: str,
    topic: str | None,
    partition: int,
    offset: int | None,
    direction: str | None,
    group: str | None,
    apply: bool,
) -> None:
    """Translate one offset, or those of a consumer group.

    An offset without a record on the other side becomes that of the next record, as a consumer would find it.
    """
    import asyncio

    from mirror.net.errors import NetworkError
    from mirror.offsetmap.lockstep import Differs
    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.offsets import translate as offsets

    flow = resolve.flow_sides(_chosen(_load(path), name)).under("-offsets")
    if group is not None and (topic is None and offset is None) and direction != "destination-to-source":
        work = offsets.translate_group(flow, group, apply=apply, tell=click.echo)
    elif group is None and topic is not None and offset is not None and not apply:
        back = direction == "destination-to-source"
        work = offsets.translate_offset(flow, topic, partition, offset, to_source=back)
    else:
        raise click.UsageError(
            "give --topic and --offset (and --partition, --direction), or --group (and --apply), whose offsets are "
            "translated from the source to the destination"
        )
    try:
        click.echo(asyncio.run(work))
    except (offsets.NotTranslated, offsets.GroupError, NetworkError, Differs) as error:
        _fail(replace(Commands.of(path), flow=name).rendered(str(error)), EXIT_FAILED)


@main.command()
@CONFIG
@FLOW
@click.option("--dry-run", is_flag=True, help="Change nothing, and show both, whether they are enabled or not.")
@click.option("--format", "shape", type=click.Choice(["text", "json"]), default="text", show_default=True)
def sync(path: Path, name: str, dry_run: bool, shape: str) -> None:
    """Carry consumer groups' offsets over to the destination, and create the ACLs of mirrored topics there: once, what
    mirror run does regularly.

    It does what sync.group.offsets.enabled and sync.topic.acls.enabled say. It may run beside the mirror.

    Exit codes: 0 done, 1 something could not be done.
    """
    import asyncio
    import json

    from mirror.net.errors import NetworkError
    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.sync import report
    from mirror.service.sync.look import look_once

    config = _load(path)
    flow = _chosen(config, name)
    settings = resolve.sync_settings(flow, resolve.group_settings(flow, config).group_id)
    if not dry_run and not settings.anything:
        _fail(
            f"flow {flow.name} carries nothing over: set sync.group.offsets.enabled or sync.topic.acls.enabled; "
            "--dry-run shows what they would do",
            EXIT_FAILED,
        )
    try:
        groups, acls = asyncio.run(look_once(resolve.flow_sides(flow), settings, dry_run=dry_run))
    except NetworkError as error:
        _fail(replace(Commands.of(path), flow=name).rendered(str(error)), EXIT_FAILED)
    if shape == "json":
        click.echo(json.dumps(report.as_data(groups, acls, applied=not dry_run), indent=2))
    else:
        click.echo(report.as_text(groups, acls, applied=not dry_run))
    sys.exit(EXIT_FAILED if report.failed(groups, acls) else EXIT_OK)


def _load(path: Path) -> "Config":
    from mirror.service.config import ConfigError, load

    try:
        return load(path)
    except ConfigError as error:
        _fail(str(error), EXIT_CONFIG)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)
