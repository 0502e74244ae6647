"""The flow and the consumer groups that the command line names."""

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
    """Returns the flow of this name, or the only enabled one. It is wrong usage if there is no such flow.

    Args:
        config: the configuration.
        name: name of the flow; empty: the only enabled flow.
        disabled: True if the named flow may be disabled.
    """
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
    """Returns the settings that select consumer groups. ``groups``: names of the only groups to select; empty: those
    that the configuration selects."""
    from dataclasses import replace

    from mirror.service.config import resolve

    settings = resolve.sync_settings(flow, resolve.group_settings(flow, config).group_id)
    if not groups:
        return settings
    return replace(settings, groups=tuple(map(re.escape, groups)), groups_exclude=(), names=groups)
