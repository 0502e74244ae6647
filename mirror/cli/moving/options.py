"""The flow that is named on the command line, and the groups of it."""

import re
from typing import TYPE_CHECKING

import click

from mirror.cli.options import chosen

if TYPE_CHECKING:
    from mirror.service.config import Config, ResolvedFlow
    from mirror.service.sync.settings import SyncSettings

NAMED = click.argument("name", metavar="[FLOW]", required=False, default="")
GROUPS = click.option(
    "--group",
    "groups",
    metavar="NAME",
    multiple=True,
    help="Only this consumer group; may be given more than once. By default those that the configuration selects.",
)


def named(config: "Config", name: str, *, disabled: bool = False) -> "ResolvedFlow":
    """Returns the flow of this name, or the only one. ``disabled``: it may be disabled, if it is named."""
    from mirror.service.config import shell_hint

    if disabled and name in config.flows:
        return config.resolved(name)
    if name and name not in config.flows:
        hint = shell_hint(name, config.flows)
        raise click.UsageError(
            f"there is no flow {name} in this configuration; it has: {', '.join(config.flows)}{hint}"
        )
    enabled = [flow.name for flow in config.enabled_flows()]
    if not name and len(enabled) > 1:
        raise click.UsageError(f"{len(enabled)} flows are enabled: name one of them, as FLOW ({', '.join(enabled)})")
    return chosen(config, name)


def groups_of(flow: "ResolvedFlow", config: "Config", groups: tuple[str, ...]) -> "SyncSettings":
    """Returns the settings by which groups are selected. ``groups``: only these, by name; empty: as configured."""
    from dataclasses import replace

    from mirror.service.config import resolve

    settings = resolve.sync_settings(flow, resolve.group_settings(flow, config).group_id)
    if not groups:
        return settings
    return replace(settings, groups=tuple(map(re.escape, groups)), groups_exclude=(), names=groups)
