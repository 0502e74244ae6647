"""``mirror audit``."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror.cli.formats import FORMAT, show
from mirror.cli.options import CONFIG, FLOW, chosen, load
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK

if TYPE_CHECKING:
    from mirror.audit.model.request import AuditRequest
    from mirror.service.config import ClusterSettings, ResolvedFlow


_OTHER = "mirror.audit.other"
"""Key in the click context's ``meta``. It is set if the command line is that of a sub-command (explain, verify)."""


class _Audit(click.Group):
    """A command with sub-commands. The audit's own options are not read, and not required, for a sub-command.

    If ``--out`` names a folder, an earlier audit's files there are removed even if the command line is wrong: otherwise
    yesterday's verdict would look like the answer.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Returns the audit's options; for a sub-command's line only the eager ones (``--help``)."""
        own = super().get_params(ctx)
        return [each for each in own if isinstance(each, click.Option) and each.is_eager] if _OTHER in ctx.meta else own

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line. If its first word is a sub-command, the line is that of the sub-command."""
        given = [*args]
        if given and given[0] in self.commands:
            ctx.meta[_OTHER] = True
        try:
            return super().parse_args(ctx, args)
        except click.UsageError:
            for at, word in enumerate(given):
                name, separate, value = word.partition("=")
                if name == "--out" and (folder := value if separate else "".join(given[at + 1 : at + 2])):
                    _remove_earlier(Path(folder))
            raise


@click.group(cls=_Audit, invoke_without_command=True, subcommand_metavar="[COMMAND]")
@click.pass_context
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
@click.option(
    "--sign-with",
    "key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Sign the certificate in --out with this private key (Ed25519, PEM).",
)
@click.option("--digest", type=click.Choice(["xxh3_128", "sha256"]), default="xxh3_128", show_default=True)
@click.option("--limit", type=click.IntRange(min=0), help="Findings shown on the terminal.")
@click.option("--master", metavar="URL", help="A Spark cluster, as spark-submit takes it; by default this machine.")
@click.option("--conf", metavar="KEY=VALUE", multiple=True, help="A setting for --master, as spark-submit takes it.")
def audit(ctx: click.Context, /, **given: Any) -> None:
    """Read both clusters and prove that the bytes are identical, or name each place where they are not.

    Exit codes: 0 identical, 1 could not finish, 2 a difference, 3 no difference, but something that cannot be proved
    any more (audit.accept).

    \b
        mirror audit -c mirror.yaml
        mirror audit -c mirror.yaml --out /var/tmp/audit
        mirror audit -c mirror.yaml --out /var/tmp/audit --sign-with audit-key.pem
        mirror audit -c mirror.yaml --metrics-file /var/lib/prometheus/node-exporter/mirror-audit.prom
        mirror audit -c mirror.yaml --master spark://spark:7077 --conf spark.executor.memory=4g
    """
    if ctx.invoked_subcommand is None:
        _run(**given)


def _run(
    path: Path,
    name: str,
    out: Path | None,
    metrics: Path | None,
    key: Path | None,
    digest: str,
    limit: int | None,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    from mirror.audit.command import audit_flow
    from mirror.service.commands import Commands

    if out is not None:
        _remove_earlier(out)
    elif key is not None:
        raise click.UsageError("--sign-with signs the certificate in a folder: name it with --out")
    flow = chosen(load(path), name)
    sys.exit(
        audit_flow(
            _request(flow, digest),
            out=out,
            key=key,
            metrics=metrics or (Path(at) if (at := flow.settings.audit_metrics_file) else None),
            limit=limit,
            typed=replace(Commands.of(path), flow=name).rendered,
            master=master,
            conf=_spark_conf(master, conf),
        )
    )


def _request(flow: "ResolvedFlow", digest: str) -> "AuditRequest":
    """Returns the request for an audit of a flow: both clusters, what is compared, and how."""
    from mirror.audit.model.request import AuditRequest, Endpoint
    from mirror.relay.settings import codec_named

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
    return AuditRequest(
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


@audit.command()
@CONFIG
@FLOW
@click.option("--topic", required=True, help="The topic, by its name at the source.")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--offset", type=click.IntRange(min=0), required=True, help="The offset at the source.")
@click.option(
    "--destination-offset",
    "there",
    type=click.IntRange(min=0),
    help="The offset at the destination, if it is another one: offsets: mapped, or a batch that was moved.",
)
@click.option("--show-records", is_flag=True, help="Show all records, with keys, values and headers.")
@FORMAT
def explain(
    path: Path, name: str, topic: str, partition: int, offset: int, there: int | None, show_records: bool, shape: str
) -> None:
    """Show the batches of both sides at an offset, side by side: headers, checksums, and a digest of each record.

    For a look at what an audit has found; findings have the offsets of both sides. It shows what is stored: nothing is
    left out, damaged batches included. What is in the records is shown only with --show-records.

    Exit codes: 0 the same, but for what is the writer's own, 1 a side cannot be read, 2 a difference.

    \b
        mirror audit explain -c mirror.yaml --topic orders --partition 3 --offset 1234
        mirror audit explain -c mirror.yaml --topic orders --offset 1234 --show-records
        mirror audit explain -c mirror.yaml --topic orders --offset 1234 --destination-offset 1200 --format json
    """
    from mirror.audit.command import explain_batches

    request = _request(chosen(load(path), name), "xxh3_128")
    shown = explain_batches(request, topic, partition, offset, offset if there is None else there, show_records)
    if shown is None:
        sys.exit(EXIT_FAILED)
    show(shape, shown.data, shown.table)
    sys.exit(EXIT_HALTED if shown.differs else EXIT_OK)


@audit.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The public key (Ed25519, PEM) whose signature it must have.",
)
def verify(path: Path, key: Path | None) -> None:
    """Verify the certificate of an audit, without any cluster.

    PATH is certificate.json or the folder of --out. What the certificate says must fit together, the files beside it
    must be as the audit wrote them, and with --key, it must have the key's signature.

    Exit codes: 0 identical, 1 not valid, or the audit could not finish, 2 a difference, 3 no difference, but something
    that cannot be proved any more.

    \b
        mirror audit verify /var/tmp/audit
        mirror audit verify /var/tmp/audit --key audit-key.pub.pem
    """
    from mirror.audit.command import verify_certificate

    sys.exit(verify_certificate(path, key))


def _remove_earlier(out: Path) -> None:
    """Removes an earlier audit's files from the folder, before anything can fail: otherwise yesterday's verdict would
    remain if, for example, the configuration is wrong. Exits with ``NOT_FINISHED`` if the folder cannot be written."""
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
