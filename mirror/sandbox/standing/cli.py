"""``mirror sandbox up | status | start | restart | down``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click
from rich.console import Console
from rich.table import Table

from mirror.sandbox import probe
from mirror.sandbox.cluster import MOST_BROKERS
from mirror.sandbox.errors import SandboxError
from mirror.sandbox.kafka.versions import DEFAULT, release
from mirror.sandbox.standing import keeper, requests, state
from mirror.sandbox.standing.state import BrokerState, SandboxState

__all__ = ["sandbox"]

P = ParamSpec("P")
R = TypeVar("R")

_CLUSTER_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_PROBE_TIMEOUT_S = 2.0


@click.group()
def sandbox() -> None:
    """Real Kafka clusters on this machine, to try things on."""


@sandbox.command()
@click.option(
    "--clusters", "names", default="source,destination", show_default=True, metavar="NAME[=VERSION],…",
    help="The clusters, each with a version of its own if need be.",
)  # fmt: skip
@click.option(
    "--version", default=DEFAULT, show_default=True, help="Apache Kafka's version, where a cluster names none."
)
@click.option(
    "--brokers", type=click.IntRange(1, MOST_BROKERS), default=1, show_default=True, help="Brokers in each cluster."
)
@click.option(
    "--property", "properties", multiple=True, metavar="KEY=VALUE", help="A broker property; may be repeated."
)
@click.option("--heap-mb", type=click.IntRange(256), default=1024, show_default=True, help="Heap of each broker.")
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C, instead of going on in the background.")
def up(names: str, version: str, brokers: int, properties: tuple[str, ...], heap_mb: int, foreground: bool) -> None:
    """Start clusters, and print where they are.

    They run until `mirror sandbox down` (or Ctrl-C with --foreground), and leave nothing behind.

    \b
        mirror sandbox up
        mirror sandbox up --clusters source=3.9.1,destination --brokers 3

    Exit codes: 0 they are up, 1 they could not be started.
    """
    wish = keeper.Wish(
        clusters=_clusters(names, version), brokers=brokers, properties=_properties(properties), heap_mb=heap_mb
    )
    if foreground:
        _reported(lambda: keeper.keep(wish, ready=_announce_foreground))
    else:
        _announce(_reported(lambda: keeper.launch(wish)))


@sandbox.command()
@click.option("--format", "as_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(as_format: str) -> None:
    """Show the clusters that are up.

    \b
        mirror sandbox status

    Exit codes: 0 they are shown, 1 none is up.
    """
    found = _reported(state.read)
    if as_format == "json":
        click.echo(json.dumps(_status(found), indent=2))
    elif found is None:
        click.echo("no sandbox is up; start one with `mirror sandbox up`")
    else:
        _show(found)
    if found is None:
        sys.exit(1)


@sandbox.command()
@click.argument("cluster")
@click.argument("broker", type=click.IntRange(1, MOST_BROKERS))
def start(cluster: str, broker: int) -> None:
    """Start a broker that was killed or stopped, with its data and its port.

    \b
        mirror sandbox start source 1

    Exit codes: 0 it runs, 1 it could not be started.
    """
    _again("start", cluster, broker)


@sandbox.command()
@click.argument("cluster")
@click.argument("broker", type=click.IntRange(1, MOST_BROKERS))
def restart(cluster: str, broker: int) -> None:
    """Stop a broker cleanly if it runs, and start it with its data and its port.

    \b
        mirror sandbox restart source 1

    Exit codes: 0 it runs, 1 it could not be started.
    """
    _again("restart", cluster, broker)


def _again(what: str, name: str, node_id: int) -> None:
    up_now = _reported(lambda: requests.ask({"do": what, "cluster": name, "broker": node_id}))
    for cluster in up_now["clusters"]:
        for broker in cluster["brokers"]:
            if (cluster["name"], broker["node_id"]) == (name, node_id):
                click.echo(f"{name} broker {node_id}: 127.0.0.1:{broker['port']}, process {broker['pid']}")


@sandbox.command()
def down() -> None:
    """End the clusters and remove their data.

    \b
        mirror sandbox down

    Exit codes: 0 ended, 1 none is up.
    """
    ended = _reported(keeper.shut_down)
    click.echo("ended: " + ", ".join(cluster["name"] for cluster in ended["clusters"]))


def _reported(action: Callable[[], R]) -> R:
    """Run an action; a ``SandboxError`` becomes a message and exit code 1."""
    try:
        return action()
    except SandboxError as error:
        raise click.ClickException(str(error)) from error


def _clusters(names: str, version: str) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for part in names.split(","):
        name, _, own = part.strip().partition("=")
        if not _CLUSTER_NAME.match(name):
            raise click.BadParameter(f"{part.strip()!r} is not a cluster's name", param_hint="--clusters")
        if name in wanted:
            raise click.BadParameter(f"{name} is named twice", param_hint="--clusters")
        wanted[name] = own or version
        try:
            release(wanted[name])
        except SandboxError as error:
            raise click.BadParameter(str(error), param_hint="--version") from error
    return wanted


def _properties(given: tuple[str, ...]) -> dict[str, str]:
    properties = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not key.strip() or not sign:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--property")
        properties[key.strip()] = value.strip()
    return properties


def _announce(up_now: SandboxState) -> None:
    for cluster in up_now["clusters"]:
        click.echo(f"{cluster['name']}: {cluster['bootstrap_servers']}  (Kafka {cluster['version']})")
    click.echo(f"state file: {state.path()}")


def _announce_foreground(up_now: SandboxState) -> None:
    _announce(up_now)
    click.echo("running; Ctrl-C ends it", err=True)


def _condition(broker: BrokerState) -> str:
    try:
        probe.metadata(broker["port"], timeout_s=_PROBE_TIMEOUT_S)
        return "up"
    except ConnectionRefusedError:
        return "down"
    except (OSError, ValueError):
        return "not answering"


def _status(found: SandboxState | None) -> dict[str, object]:
    if found is None:
        return {"up": False, "state_file": str(state.path()), "clusters": []}
    clusters = [
        {**cluster, "brokers": [{**broker, "condition": _condition(broker)} for broker in cluster["brokers"]]}
        for cluster in found["clusters"]
    ]
    return {
        "up": True, "state_file": str(state.path()), "keeper_pid": found["keeper_pid"], "clusters": clusters
    }  # fmt: skip


def _show(found: SandboxState) -> None:
    table = Table("cluster", "version", "broker", "bootstrap.servers", "pid", "condition")
    for cluster in found["clusters"]:
        for broker in cluster["brokers"]:
            table.add_row(
                cluster["name"], cluster["version"], str(broker["node_id"]), f"127.0.0.1:{broker['port']}",
                str(broker["pid"]), _condition(broker),
            )  # fmt: skip
    Console().print(table)
    click.echo(f"kept by process {found['keeper_pid']}; state file: {state.path()}")
