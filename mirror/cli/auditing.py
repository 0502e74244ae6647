"""``mirror audit``."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror.cli.options import CONFIG, FLOW, chosen, load

if TYPE_CHECKING:
    from mirror.service.config import ClusterSettings


class _Command(click.Command):
    """Removes an earlier audit's files also if the command line is wrong: nothing of yesterday is left as an answer."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError:
            for at, word in enumerate(given):
                name, separate, value = word.partition("=")
                if name == "--out" and (folder := value if separate else "".join(given[at + 1 : at + 2])):
                    _remove_earlier(Path(folder))
            raise


@click.command(cls=_Command)
@CONFIG
@FLOW
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write findings and coverage to this folder, as Parquet and JSON.",
)
@click.option(
    "--metrics-file",
    "metrics",
    type=click.Path(path_type=Path),
    help="Also write what the audit said to this file (NAME.prom), as metrics for node_exporter's textfile collector; "
    "by default audit.metrics.file.",
)
@click.option("--digest", type=click.Choice(["xxh3_128", "sha256"]), default="xxh3_128", show_default=True)
@click.option("--limit", type=click.IntRange(min=0), help="Findings shown on the terminal.")
@click.option("--master", metavar="URL", help="A Spark cluster, as spark-submit takes it; by default this machine.")
@click.option("--conf", metavar="KEY=VALUE", multiple=True, help="A setting for --master, as spark-submit takes it.")
def audit(
    path: Path,
    name: str,
    out: Path | None,
    metrics: Path | None,
    digest: str,
    limit: int | None,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Read both clusters and prove that the bytes are identical, or name each place where they are not.

    Exit codes: 0 identical, 1 could not finish, 2 a difference, 3 no difference, but something that cannot be proved
    any more (audit.accept).

    \b
        mirror audit -c mirror.yaml
        mirror audit -c mirror.yaml --out /var/tmp/audit
        mirror audit -c mirror.yaml --metrics-file /var/lib/prometheus/node-exporter/mirror-audit.prom
        mirror audit -c mirror.yaml --master spark://spark:7077 --conf spark.executor.memory=4g
    """
    from mirror.audit.command import audit_flow
    from mirror.audit.model import AuditRequest, Endpoint
    from mirror.relay.settings import codec_named
    from mirror.service.commands import Commands

    if out is not None:
        _remove_earlier(out)
    config = load(path)
    flow = chosen(config, name)

    def endpoint(alias: str, settings: "ClusterSettings") -> Endpoint:
        return Endpoint(
            alias=alias,
            bootstrap=tuple((address.host, address.port) for address in settings.bootstrap_servers),
            client_id=f"{settings.client_id}-audit",
            request_timeout_s=settings.request_timeout_ms / 1000,
            setup_timeout_s=settings.socket_connection_setup_timeout_ms / 1000,
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
        codec=codec_named(flow.settings.compression_type),
        rebatches=flow.settings.mode != "shallow",
        append_times=flow.settings.destination_timestamps == "append",
    )
    sys.exit(
        audit_flow(
            request,
            out=out,
            metrics=metrics or (Path(at) if (at := flow.settings.audit_metrics_file) else None),
            limit=limit,
            typed=replace(Commands.of(path), flow=name).rendered,
            master=master,
            conf=_spark_conf(master, conf),
        )
    )


def _remove_earlier(out: Path) -> None:
    """Removes an earlier audit's files before anything can go wrong: a configuration with a mistake must not leave the
    verdict of yesterday there."""
    from rich.console import Console

    from mirror.audit.command import ExitCode, tell
    from mirror.audit.errors import AuditError
    from mirror.audit.folder import prepare

    try:
        prepare(out)
    except AuditError as error:
        tell(Console(stderr=True), error)
        sys.exit(ExitCode.NOT_FINISHED)


def _spark_conf(master: str | None, given: tuple[str, ...]) -> dict[str, str]:
    """Parses the ``KEY=VALUE`` settings of ``--conf``."""
    wrong = [each for each in given if "=" not in each]
    if wrong:
        raise click.BadParameter(f"{wrong[0]} is not KEY=VALUE", param_hint="--conf")
    if given and master is None:
        raise click.UsageError("--conf is for a Spark cluster: name it with --master")
    return dict(each.split("=", 1) for each in given)
