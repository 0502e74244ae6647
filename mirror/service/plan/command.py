"""``mirror plan``: asks the clusters, judges and prints. With ``--fix``, it makes the repairs that are safe, and plans
again."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mirror.foretold import FORETOLD
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Unsupported
from mirror.reasons import HaltReason
from mirror.service.commands import Commands
from mirror.service.config import ClusterSettings, Config, ResolvedFlow
from mirror.service.config.resolve import cluster_options, relay_settings, sync_settings
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK
from mirror.service.plan.ask.flow import Asking, FlowAsked
from mirror.service.plan.document import document
from mirror.service.plan.fix import Act, acts_for, done
from mirror.service.plan.model import Level
from mirror.service.plan.report import Report
from mirror.service.plan.table import text


class NotPlanned(Exception):
    """The clusters could not be asked; the message says why. ``code``: the exit code."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


class NotMirrored(Exception):
    """A topic was named that no flow mirrors; the message names it."""


def plan(
    config: Config,
    commands: Commands,
    *,
    flows: Sequence[ResolvedFlow],
    topics: Collection[str],
    sample_bytes: int,
    everything: bool,
    fix: bool,
    dry_run: bool,
    tell: Callable[[dict[str, Any], str], object],
) -> int:
    """Plans flows of a configuration.

    Args:
        config: the configuration.
        commands: the mirror's commands as they are typed here.
        flows: flows of the configuration to plan.
        topics: names of the only topics to plan, at the source; empty: all topics.
        sample_bytes: bytes to read of each flow's source, approximately.
        everything: True to show also what needs no attention.
        fix: True to make or show the repairs that are safe.
        dry_run: True to show the repairs only.
        tell: gets the output, as data and as text.

    Returns:
        The exit code: ``EXIT_HALTED`` if something is refused; otherwise ``EXIT_FAILED`` if something is not known or a
        repair has failed; otherwise ``EXIT_OK``.

    Raises:
        NotMirrored: none of the flows mirrors one of the ``topics``.
        NotPlanned: the clusters of none of the flows could be asked.
    """
    for name in topics:
        if not any(flow.settings.selects(name) for flow in flows):
            raise NotMirrored(f"no flow mirrors topic {name}; check topics and exclude")
    reports: list[Report] = []
    acts: dict[str, list[Act]] = {}
    failures: dict[str, NotPlanned] = {}
    typed: dict[str, Commands] = {}
    for flow in flows:
        if topics and not any(flow.settings.selects(name) for name in topics):
            continue
        asking = asking_of(config, flow, topics=topics, sample_bytes=sample_bytes)
        try:
            report = asyncio.run(_asked(asking))
            acts[flow.name] = acts_for(report.fixable, asking.settings, report.flow.destination.name)
            if fix and not dry_run and acts[flow.name]:
                acts[flow.name] = asyncio.run(_fixed(asking, report, acts[flow.name]))
                report = asyncio.run(_asked(asking))
            typed[report.flow.name] = commands.towards(asking.destination, flow.settings.selection)
            reports.append(report)
        except Unsupported as error:
            reason = HaltReason.NO_COMMON_VERSION
            told = f"{FORETOLD[reason]} ({reason.slug}): {error}. {reason.told}"
            failures[flow.name] = NotPlanned(told, EXIT_HALTED)
        except NetworkError as error:
            failures[flow.name] = NotPlanned(str(error))
    if failures and not reports:
        raise _together(failures)
    fixed = fix and not dry_run
    shown = acts if fix else {}
    codes = [exit_code(reports, shown), *(failure.code for failure in failures.values())]
    code = EXIT_HALTED if EXIT_HALTED in codes else max(codes)
    untold = {name: str(failure) for name, failure in failures.items()}
    texts = [
        text(report, shown.get(report.flow.name, ()), typed[report.flow.name], everything=everything, fixed=fixed)
        for report in reports
    ]
    texts += [f"flow {name} could not be asked: {failure}\n" for name, failure in failures.items()]
    tell(
        document(reports, shown, typed, exit_code=code, fixed=fixed, not_asked=untold),
        "\n".join(texts).rstrip("\n"),
    )
    return code


def _together(failures: Mapping[str, NotPlanned]) -> NotPlanned:
    """Returns one exception for flows none of which could be asked."""
    if len(failures) == 1:
        return next(iter(failures.values()))
    codes = {failure.code for failure in failures.values()}
    told = "\n".join(f"flow {name} could not be asked: {failure}" for name, failure in failures.items())
    return NotPlanned(told, EXIT_HALTED if EXIT_HALTED in codes else EXIT_FAILED)


def asking_of(config: Config, flow: ResolvedFlow, *, topics: Collection[str] = (), sample_bytes: int) -> Asking:
    """Returns what to ask about a flow. ``topics``: names of the only topics to plan; empty: all; ``sample_bytes``:
    bytes to read of the source, approximately."""
    return Asking(
        name=flow.name,
        source=cluster_options(flow.source, reads_only=True),
        destination=cluster_options(flow.destination),
        settings=relay_settings(flow, config),
        group_id=config.group_of(flow),
        users=(_user(flow.source), _user(flow.destination)),
        only=lambda name: not topics or name in topics,
        sample_bytes=sample_bytes,
        sync=sync_settings(flow, config.group_of(flow)),
    )


def _user(cluster: ClusterSettings) -> str:
    """Returns the name with which the mirror authenticates; empty if the configuration does not have it."""
    sasl = cluster.security.sasl
    return sasl.username if sasl is not None else ""


async def _asked(asking: Asking) -> Report:
    async with FlowAsked(asking) as asked:
        await asked.look()
        report = Report(asked.facts, asked.topics.found)
        async for topic, partition in asked.partitions():
            report.tell(topic, partition)
        report.finish(asked.facts)
        return report


async def _fixed(asking: Asking, report: Report, acts: list[Act]) -> list[Act]:
    here, _, there = asking.name.partition("->")
    async with await Cluster.open(here, asking.source) as source, await Cluster.open(there, asking.destination) as to:
        only = replace(asking.settings, selects=lambda name: asking.settings.selects(name) and asking.only(name))
        return await done(acts, report.found, source, to, only)


def exit_code(reports: Collection[Report], acts: dict[str, list[Act]]) -> int:
    """Returns the exit code for these plans; see ``plan``. ``acts``: flow -> the repairs that were made or shown."""
    level = max((report.level for report in reports), default=Level.TOLD)
    if level is Level.REFUSED:
        return EXIT_HALTED
    failed = any(act.failed for some in acts.values() for act in some)
    return EXIT_FAILED if level is Level.UNKNOWN or failed else EXIT_OK
