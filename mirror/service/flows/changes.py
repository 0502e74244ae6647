"""Decides what a new configuration changes in a running service. ``Supervisor.apply``, which
``service.flows.reloading`` calls, carries it out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mirror.service.worker_settings import Handover, Supervision

FIXED: Mapping[str, str] = {
    "http_listen": "http.listen",
    "log_level": "log.level",
    "progress_interval_ms": "progress.interval.ms",
    "pool": "workers",
}
"""Settings that cannot change while the service runs -> their keys in the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes to carry out.

    Attributes:
        told: the settings from now on: the new ones, except those that need a restart of the service.
        added, removed, restarted, limited, untouched: names of flows. ``limited``: only their limits change
            (``max.bytes.per.second`` and ``topic.max.bytes.per.second``), without a restart of the flow.
        need_restart: keys that have changed but keep their old value until the service is restarted.
    """

    told: Supervision
    added: tuple[str, ...]
    removed: tuple[str, ...]
    restarted: tuple[str, ...]
    limited: tuple[str, ...]
    untouched: tuple[str, ...]
    need_restart: tuple[str, ...]


def changes(old: Supervision, new: Supervision) -> Changes:
    """Compares the settings in effect with the new ones, and returns the changes."""
    fixed = {name: getattr(old, name) for name in FIXED}
    need_restart = tuple(sorted(key for name, key in FIXED.items() if getattr(new, name) != fixed[name]))
    running = {flow.flow: flow for flow in old.flows}
    flows = tuple(_as_running(flow, running.get(flow.flow)) for flow in new.flows)
    wanted = {flow.flow: flow for flow in flows}
    both = [name for name in running if name in wanted]
    return Changes(
        told=replace(new, flows=flows, **fixed),
        added=tuple(name for name in wanted if name not in running),
        removed=tuple(name for name in running if name not in wanted),
        restarted=tuple(name for name in both if not _is_same(wanted[name].limited_as(running[name]), running[name])),
        limited=tuple(
            name
            for name in both
            if not _is_same(wanted[name], running[name])
            and _is_same(wanted[name].limited_as(running[name]), running[name])
        ),
        untouched=tuple(name for name in both if _is_same(wanted[name], running[name])),
        need_restart=need_restart,
    )


def _is_same(one: Handover, other: Handover) -> bool:
    return one.pack() == other.pack()


def _as_running(new: Handover, old: Handover | None) -> Handover:
    """Returns the flow's new settings with the old interval of its reports: it depends on a setting that cannot
    change."""
    return new if old is None else replace(new, snapshot_interval_ms=old.snapshot_interval_ms)
