"""``docs/EVENTS.md``: every event that ``mirror run`` logs. ``python -m tests.project.events_document`` writes it.

What an event means is said here. Its levels and fields are read from the code that logs it, so they cannot be wrong.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mirror.service.log import logs

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / "docs" / "EVENTS.md"
_CODE = ("net", "offsetmap", "relay", "service")
_LEVELS = ("info", "warning", "error")

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "The service": {
        "connecting": "A cluster is connected to for the first time.",
        "listening": "The HTTP server listens; with port 0 in `http.listen`, this is the address.",
        "http_failed": "An answer of the HTTP server, or the server itself, failed because of a mistake in the mirror. "
        "Copying goes on.",
        "report_failed": "What the service tells of its flows could not be made out, because of a mistake in the "
        "mirror. Copying goes on.",
        "worker_started": "A worker process was started.",
        "worker_stopped": "A worker process has ended as told.",
        "worker_died": "A worker process has ended by itself. It is started again after `restart_s`, if that is there.",
        "worker_not_started": "The machine can start no process for a worker now: too many processes or open files, or "
        "too little memory. It is tried again after `restart_s`; the others go on.",
        "worker_killed": "A worker did not stop in time, and was killed. The next start goes on where its copies end.",
        "worker_failed": "A worker process ends because of an error; the line after it says when it is started again.",
        "failed": "The service cannot run, or not go on: the configuration, `http.listen`, or the brokers' versions.",
        "stopping": "The service was told to stop, by a signal or by `mirror stop`, and drains.",
        "killed": "A second signal: the service ends without waiting for the drain.",
        "stopped": "The service has stopped. `drained`: all that was sent is acknowledged; `pending`: batches that "
        "are not. `records`, `batches`, `bytes`: what was written after the last report before the stop. `committed`: "
        "in how many of the `partitions` the group's offset is the position.",
        "reloading": "The configuration was read again and is right: what comes, goes, and starts anew.",
        "reloaded": "That is done.",
        "reload_needs_restart": "Keys that have changed, and are used from the next start of the service on.",
        "not_reloaded": "The configuration is wrong, and nothing was changed. From a worker: SIGHUP was sent to it by "
        "mistake.",
        "service_manager_not_told": "systemd does not take the messages of the service (`$NOTIFY_SOCKET`).",
        "repeats_suppressed": "So many lines about the same thing were held back.",
        "metrics_not_exported": "The collector at `otel.exporter.otlp.endpoint` does not take the metrics. Told when "
        "that begins, and every ten minutes.",
        "metrics_exported_again": "It takes them again.",
        "log_lines_lost": "So many lines could not be written: whoever reads stdout is too slow, or the disk is full.",
    },
    "A flow": {
        "started": "Both clusters were reached, and there is something to copy.",
        "waiting": "The flow cannot start for now: a cluster, a topic, a right. It goes on by itself.",
        "waiting_over": "It has started after all.",
        "flow_stopped": "A reload has removed or restarted the flow, and this is the end of its former run.",
        "flow_failed": "A flow of a process with several has failed; it begins anew after `restart_s`.",
        "progress": "What was copied since the last such line, every `progress.interval.ms`.",
        "caught_up": "Everything that the source had is copied.",
        "all_halted": "Every partition here has halted, and nothing is copied.",
        "cluster_lost": "A cluster does not answer any more.",
        "cluster_back": "It answers again.",
        "broker_unreachable": "Brokers of a cluster that answers cannot be connected to.",
        "source_unreachable": "No connection can be made to a broker of the source: its partitions are located again.",
        "source_connection_lost": "The connection to a broker of the source was lost. It is made again.",
        "lane_stalled": "Batches that wait for a slow broker of the destination are taken out of the buffer, so that "
        "others go on.",
    },
    "The consumer group": {
        "assigned": "The group has given these partitions to this worker.",
        "revoked": "The group takes these partitions away; what was sent is acknowledged first.",
        "partitions_lost": "The group has given them to somebody else: this worker's session was over.",
        "offsets_not_committed": "The group's offsets could not be committed. Copying does not depend on them.",
        "group_trouble": "No client of the group can be made.",
        "group_client_replaced": "The group's client left a rebalance unfinished; a new one joins.",
        "group_not_left": "The group's coordinator did not answer when the worker left.",
        "group_shared": "Others than mirrors of this flow are in the group, and hold partitions of it.",
        "member_not_expelled": "A dead worker could not be taken out of the group; its session ends by itself.",
    },
    "Partitions": {
        "located": "It is known where a partition goes on.",
        "resync": "A partition's position became uncertain: it is looked for in both logs.",
        "halted": "A partition has stopped. [HALTS.md](HALTS.md) has each reason; `remedy` has the command.",
        "healed": "The reason of a halt is gone, and the partition goes on by itself.",
        "resumed": "An operator has resumed it.",
        "paused": "An operator has paused it; after a restart, it is still paused.",
        "skipped": "Offsets that will not be copied, by decision, or because the source deleted them during a halt.",
        "oversize_record": "A record is too large for the destination, and was passed over (`oversize.record`).",
        "settings_accepted": "An operator has continued a copy that was made under another `isolation.level`.",
        "prefix_unproven": "The end of the destination cannot be compared with the source: log cleaners, or deletion.",
        "copy_begins": "The copy of a partition begins later than its source, by `start.from`; once, with the offset.",
        "begun_anew": "A copy begins anew in a destination that holds nothing of it any more.",
        "destination_lost": "The destination lacks what it had acknowledged. It is copied again (`offsets: mapped`).",
        "configs_changed": "A verdict is judged again: the topic's settings are others by now.",
        "many_holes": "Much of the topic has no record at the source, and filling costs more than copying.",
        "leading_offsets_filled": "The offsets before the source's first record were filled at the destination.",
        "leading_offsets_trimmed": "That filler was deleted.",
        "under_replicated": "The destination's end is not replicated yet; it is waited for.",
        "storage_unavailable": "The source's broker cannot read the log for now (tiered storage).",
        "leader_epoch_damaged": "A batch has an impossible leader epoch. It is copied, and the epoch is not used.",
        "replica_followed": "The partition is fetched from a replica that is nearer (`client.rack`).",
        "replica_left": "It is fetched from its leader again.",
        "no_ownership": "The mirror may not use transactional ids: two workers at once could fill one hole twice.",
        "halt_not_written": "A halt, or what was due then, is not written down: another worker has the partition.",
        "not_renewed": "The ownership of a partition could not be renewed; it is tried again.",
        "not_authorized": "A right is missing; the line names it, and it is asked for again.",
        "predecessor_not_fenced": "A former worker may still send: the right to write markers is missing (`offsets: "
        "mapped`).",
        "producer_memory_assumed": "No broker says how long it remembers producers; Kafka's default is assumed.",
        "producer_memory_changed": "`producer.id.expiration.ms` of the destination is another one now.",
    },
    "Topics": {
        "topic_created": "A topic was created at the destination.",
        "partitions_added": "Partitions were added to a topic of the destination.",
        "topic_unknown": "An entry of `topics` matches nothing.",
        "topic_gone": "A topic that was copied is no longer at the source. Its copy stays.",
        "topic_hidden": "A topic that was copied cannot be described any more: it is gone, or the right is.",
        "topics_not_refreshed": "A look for new topics failed; the next one follows.",
        "configs_unknown": "The mirror may not read topics' settings.",
        "configs_known": "It may again.",
        "destination_narrower": "A setting of destination topics refuses what the source may hold.",
        "topic_config_unknown": "`sync.topic.configs` names a setting that brokers do not know.",
        "topic_configs_changed": "Settings of a destination topic were brought in step with the source's.",
        "topic_configs_contended": "Somebody else sets them back each time; they are left alone.",
        "topic_configs_refused": "The destination refuses them.",
        "cleanup_left_suspended": "A partition was let go while the offsets before the source's first record were "
        "being filled: the topic does not compact until it is copied on.",
        "loops_not_looked_for": "Whether records would come back by other flows could not be asked; the former answer "
        "stands.",
        "loops_not_seen": "Other flows' internal topics cannot be read, so loops over them are not seen.",
    },
    "The internal topic": {
        "state_lost": "The internal topic was deleted or cut. What this process knows is written again.",
        "state_not_read": "It cannot be read now.",
        "state_not_written": "It cannot be written now; it is tried again.",
        "state_unusable": "It holds what no mirror of this flow has written, or what a newer version has.",
    },
    "Group offsets and ACLs": {
        "sync_started": "The process that carries them over was started.",
        "sync_died": "It has ended, and is started again.",
        "sync_failed": "A round failed by an error of the program.",
        "sync_back": "What was in the way is gone.",
        "group_offsets_synced": "Offsets of consumer groups were committed at the destination.",
        "group_offsets_none": "No group at the source has offsets to carry over.",
        "group_offsets_not_synced": "Some or all could not be carried over, and why.",
        "topic_acls_synced": "ACLs of topics were created at the destination.",
        "topic_acls_off": "A cluster has no authorizer, so there are no ACLs to copy.",
        "topic_acls_not_synced": "Some or all could not be created, and why.",
    },
}
"""By what it is about: event -> what it means."""


_PASSED_ON = (ast.Name, ast.Subscript)
"""Values that are events of other places: arguments, and those of workers' messages."""


class Logged(NamedTuple):
    """What the code says of an event."""

    levels: set[str]
    fields: set[str]


def logged() -> dict[str, Logged]:
    """Every event, with its levels, and the fields that are named where it is logged."""
    found: dict[str, Logged] = defaultdict(lambda: Logged(set(), set()))
    for package in _CODE:
        for path in sorted((ROOT / "mirror" / package).rglob("*.py")):
            tree = ast.parse(path.read_text())
            for node in ast.walk(tree):
                for name, level, fields in _calls(node, tree):
                    found[name].levels.add(level)
                    found[name].fields.update(fields)
    found[logs.LINES_LOST].levels.add("warning")  # made where no logger is
    found[logs.LINES_LOST].fields.update(("count", "detail"))
    return found


def _calls(node: ast.AST, tree: ast.AST) -> Iterator[tuple[str, str, list[str]]]:
    """Yields the events of a call of a logger: name, level, named fields. Names may be constants of ``logs``, or
    variables that are set to text somewhere in the same file."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LEVELS):
        return
    if not node.args or "log" not in ast.unparse(node.func.value):
        return
    fields = [each.arg for each in node.keywords if each.arg]
    for name in _names(node.args[0], tree):
        yield name, node.func.attr, fields


def _names(node: ast.expr, tree: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(name)):
            yield name
        case ast.Name(id=name) if hasattr(logs, name):
            yield getattr(logs, name)
        case ast.Attribute(value=ast.Name(id="logs"), attr=name):
            yield getattr(logs, name)
        case ast.IfExp():
            yield from _names(node.body, tree)
            yield from _names(node.orelse, tree)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield from _assigned(name.lstrip("_"), tree)
        case _:
            raise AssertionError(f"which event is {ast.unparse(node)}?")


def _assigned(variable: str, tree: ast.AST) -> Iterator[str]:
    """Yields the texts that a variable gets: by an assignment, or as an argument of a function of this file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for each, value in zip(names, values, strict=False):
                    if isinstance(each, ast.Name) and each.id == variable and not isinstance(value, _PASSED_ON):
                        yield from _names(value, tree)
        elif isinstance(node, ast.Call) and node is not tree:
            callee = ast.unparse(node.func).removeprefix("self.")
            at = _place(callee, variable, tree)
            if at is not None and at < len(node.args) and isinstance(node.args[at], ast.Constant):
                yield from _names(node.args[at], tree)


def _place(callee: str, variable: str, tree: ast.AST) -> int | None:
    """The place of the argument of this name among those of a function, or of a class's ``__init__``."""
    for node in ast.walk(tree):
        functions = []
        if isinstance(node, ast.FunctionDef) and node.name == callee:
            functions = [node]
        elif isinstance(node, ast.ClassDef) and node.name == callee:
            functions = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        for function in functions:
            names = [each.arg for each in function.args.args if each.arg != "self"]
            if variable in names:
                return names.index(variable)
    return None


_HEAD = """\
# Events

What `mirror run` logs: one JSON line for each event on stdout (a console for people, if that is a terminal). Names are
stable: scripts and alerts may search for them. Every line has `timestamp` (ISO 8601, UTC), `level` and `event`, and
those about a flow have `flow`. No line has contents of records, or secrets.

Many lines of one kind at once are condensed ([how](DESIGN.md#64-the-log)); `log.level: debug` logs each.

Made by `python -m tests.project.events_document`; do not edit.
"""


def document() -> str:
    """Markdown: a table for each group."""
    known = logged()
    parts = [_HEAD]
    for title, events in MEANINGS.items():
        rows = [
            f"| `{name}` | {', '.join(sorted(known[name].levels, key=_LEVELS.index))} | {meaning} | "
            f"{', '.join(f'`{field}`' for field in sorted(known[name].fields))} |"
            for name, meaning in events.items()
        ]
        head = [f"## {title}\n", "| event | level | what it says | fields |", "| :-- | :-- | :-- | :-- |"]
        parts.append("\n".join([*head, *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(document())
