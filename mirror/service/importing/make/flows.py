"""Makes the settings of one flow: topics, kind of offsets, and what is copied besides records."""

import json
import re
from typing import Literal

from mirror.service.config.checks.topic_configs import SYNCED_TOPIC_CONFIGS
from mirror.service.importing import accounting
from mirror.service.importing.model import FlowInput, Given, Inputs, Setting
from mirror.service.importing.settings import flows as names
from mirror.service.importing.settings import lookup
from mirror.service.importing.settings.clients import CLUSTERS, ISOLATION
from mirror.service.importing.settings.rule import How, Rule
from mirror.service.importing.translate import patterns, references
from mirror.service.importing.translate.values import NotConverted, converted
from mirror.service.selection import is_internal, is_topic_name, topic_pattern

Offsets = Literal["exact", "mapped"]

_IDENTITY = (
    "org.apache.kafka.connect.mirror.identityreplicationpolicy",
    "io.strimzi.kafka.connect.mirror.identityreplicationpolicy",
)
_PREFIX = "org.apache.kafka.connect.mirror.defaultreplicationpolicy"
_PLACEHOLDER = "to-be-decided"
_SEPARATOR = re.compile(r"[A-Za-z0-9._-]+")
_WORKED_OUT = {
    names.ENABLED, names.TOPICS, names.EXCLUDE, names.POLICY, names.SEPARATOR, names.CONFIGS_EXCLUDE, "groups",
    names.GROUPS_EXCLUDE, "sync.topic.configs.enabled", "sync.topic.acls.enabled", "sync.group.offsets.enabled",
}  # fmt: skip


_NARROWED = "4.0"
"""The Kafka version from which MirrorMaker 2 regards only its own topics as internal."""


def _any_of(*separators: str) -> str:
    """Returns the expression that matches one of these texts."""
    each = [re.escape(text) for text in dict.fromkeys(separators)]
    return each[0] if len(each) == 1 else f"({'|'.join(each)})"


class Flow:
    """Makes the settings of one flow; ``settings`` and ``notes`` are the result."""

    def __init__(self, inputs: Inputs, flow: FlowInput, offsets: Offsets | None) -> None:
        self._inputs = inputs
        self._ledger = inputs.ledger
        self._flow = flow
        self._off = [flow.off] if flow.off else []
        self.notes: list[str] = []
        self._written: list[Setting] = []
        self._name_topics(offsets)
        self._choose_topics()
        self._go_along()
        self._read()
        self._rest()

    @property
    def settings(self) -> list[Setting]:
        """The flow's settings, in the order in which they are written."""
        if not self._off:
            return self._written
        off = Setting(path=self._path("enabled"), value=False, note="; ".join(self._off))
        return [*self._written[:1], off, *self._written[1:]]

    def _path(self, key: str) -> tuple[str, ...]:
        return ("flows", self._flow.name, key)

    def _write(self, key: str, value: str | int | bool | tuple[str, ...], *given: Given, note: str = "") -> None:
        self._written.append(Setting(path=self._path(key), value=value, given=given, note=note))
        for each in given:
            self._ledger.taken(each)

    # -- names and offsets -------------------------------------------------------------------------------------------

    def _name_topics(self, wanted: Offsets | None) -> None:
        given, separator = self._flow.settings.get(names.POLICY), self._flow.settings.get(names.SEPARATOR)
        policy = given.value.strip().lower() if given else _PREFIX
        self._by_prefix = policy == _PREFIX and wanted != "exact"
        self._between = separator.value.strip() if separator else "."
        if policy not in (_PREFIX, *_IDENTITY) and given is not None:
            self._ledger.decide(given, "no Java class can be plugged in: topics keep their names; topic.rename "
            "(with offsets: mapped) "
                                "gives them others")  # fmt: skip
        if self._by_prefix and not _SEPARATOR.fullmatch(self._between):
            if separator is not None:
                self._ledger.decide(separator, "write letters, digits, dots, dashes or underscores")
            self._between = "."
            self._off.append(f"decide on {names.SEPARATOR}")
        self._policy = policy
        self._offsets: Offsets = wanted or ("mapped" if self._by_prefix or self._shares_its_destination() else "exact")
        self._explain(wanted)

    def _shares_its_destination(self) -> bool:
        """Returns True if another flow writes to the same cluster: topics of both may then have the same name there."""
        return sum(flow.destination == self._flow.destination for flow in self._inputs.flows.values()) > 1

    def _explain(self, wanted: Offsets | None) -> None:
        """Adds notes: which kind of offsets was chosen and why, and what to pay attention to."""
        alias, there, between = self._flow.source, self._flow.destination, self._between
        if self._by_prefix:
            self.notes += [
                f'offsets: mapped, because MirrorMaker 2 puts "{alias}{between}" before the names of topics, as '
                f"replication.policy: prefix does,",
                "and only mapped copies may have other names. Every record that the source still has is appended once:",
                f"topics {alias}{between}* that MirrorMaker 2 has filled at {there} would hold those records twice. "
                f"Delete these topics first, or",
                "begin beside MirrorMaker 2 with the source's names and offsets (mirror config import --offsets "
                "exact).",
            ]
            self._ledger.remark(
                f"{self._flow.name}: topics {alias}{between}* that MirrorMaker 2 has filled at {there} would get "
                f"every record once more: "
                "delete them first, or import with --offsets exact, to begin beside MirrorMaker 2"
            )
        elif self._offsets == "exact":
            self.notes += [
                "offsets: exact, the safe choice for a start beside MirrorMaker 2: record N at the source is record "
                "N at the destination,",
                "and a destination topic that holds anything else halts (not_a_copy, foreign_writer) instead of "
                "being written to.",
            ]
            if self._policy in _IDENTITY:
                self.notes.append(
                    f"That includes topics that MirrorMaker 2 has filled at {there}: its copies have other offsets. "
                    f"Delete them before the start."
                )
                self._ledger.remark(
                    f"{self._flow.name}: topics that MirrorMaker 2 has filled at {there} halt: stop it, and delete "
                    f"them before the start"
                )
            elif self._policy == _PREFIX:
                self.notes.append(
                    f"Topics keep their names: {alias}{between}* of MirrorMaker 2 stay as they are, and consumers "
                    f"move to the names of the source."
                )
        else:
            self.notes += [
                "offsets: mapped, as --offsets says."
                if wanted
                else f"offsets: mapped, because several flows write to {there}, and topics keep their names.",
                "Every record that the source still has is appended once: topics that MirrorMaker 2 has filled "
                "would hold those records twice.",
            ]
            self._ledger.remark(
                f"{self._flow.name}: topics that MirrorMaker 2 has filled at {there} would get every record once "
                f"more: delete them first"
            )

    # -- topics ------------------------------------------------------------------------------------------------------

    def _choose_topics(self) -> None:
        given = self._flow.settings.get(names.TOPICS)
        found = self._entries(given, (".*",))
        topics = tuple(entry for entry in found.entries if not (is_topic_name(entry) and is_internal(entry)))
        notes = list(found.notes)
        if len(topics) < len(found.entries):
            notes.append("internal topics are never copied, and were taken off the list")
        if found.failed and given is not None:
            self._ledger.decide(given, f"could not be translated: {', '.join(found.failed)}")
        if not topics:
            self._off.append("no topic is selected: decide on topics")
            topics = (_PLACEHOLDER,)
        if given is None:
            notes.append("MirrorMaker 2's default")
        self._write("topics", topics, *self._of(given), note="; ".join(notes))
        self._exclude()
        self._write("offsets", self._offsets)
        policy, separator = self._flow.settings.get(names.POLICY), self._flow.settings.get(names.SEPARATOR)
        for enabled in self._of(self._flow.settings.get(names.ENABLED)):
            self._ledger.taken(enabled)
        if self._by_prefix:
            self._write(
                "replication.policy", "prefix", *self._of(policy), note="" if policy else "MirrorMaker 2's default"
            )
            if separator is not None and self._between == separator.value.strip():
                self._write("replication.policy.separator", self._between, separator)
        else:
            chosen = policy is not None and self._policy == _PREFIX
            self._write("replication.policy", "identity", *(() if chosen else self._of(policy)))
            if policy is not None and chosen:
                self._ledger.not_needed(policy, "--offsets exact keeps the names of topics")
            if separator is not None:
                self._ledger.not_needed(separator, "topics keep their names")

    def _exclude(self) -> None:
        given = self._flow.settings.get(names.EXCLUDE)
        found = self._entries(given, (r".*\.replica",))
        notes = list(found.notes) if given else ["MirrorMaker 2's default"]
        if found.failed and given is not None:
            self._ledger.decide(given, f"could not be translated: {', '.join(found.failed)}")
            self._off.append(f"without all of {names.EXCLUDE}, more would be copied than before: decide on exclude")
        enabled = self._flow.settings.get(names.INTERNAL_SEPARATOR)
        inside = "." if enabled and enabled.value.strip().lower() == "false" else self._between
        own = [
            rf"mm2.*{_any_of('.', inside)}internal",
            rf".*{re.escape(inside)}checkpoints{re.escape(inside)}internal",
            rf"(.*{re.escape(self._between)})?heartbeats",
        ]
        notes.append("the last three are MirrorMaker 2's own topics")
        if given is None or "internal" not in given.value:
            own.insert(0, f".*{_any_of('.', '-', inside)}internal")
            notes.append(
                f"before Kafka {_NARROWED}, MirrorMaker 2 left out whatever ends in .internal or -internal: take "
                f"{json.dumps(own[0])} out, if such topics of yours are to be copied"
            )
        self._write("exclude", tuple(dict.fromkeys([*found.entries, *own])), *self._of(given), note="; ".join(notes))

    def _entries(self, given: Given | None, default: tuple[str, ...], what: str = "topics") -> patterns.Entries:
        if given is None:
            return patterns.Entries(default)
        if references.refers(given.value):
            return patterns.Entries((), (), ("it comes from a ConfigProvider: write the list itself",))
        return patterns.entries(given.value, names=what)

    @staticmethod
    def _of(*given: Given | None) -> tuple[Given, ...]:
        return tuple(each for each in given if each is not None)

    # -- what goes along with the records ----------------------------------------------------------------------------

    def _go_along(self) -> None:
        for key in ("sync.topic.configs.enabled", "sync.topic.acls.enabled"):
            merged = key == "sync.topic.configs.enabled" and not self._by_prefix and self._offsets == "mapped"
            if key in self._flow.settings:
                self._convert(key)
            elif not merged:  # if several source topics go into one, it is not clear whose configs to keep in step
                self._write(key, True, note="MirrorMaker 2's default")
        self._configs()
        syncs = self._flow.settings.get("sync.group.offsets.enabled")
        failed = self._groups("groups") + self._groups(names.GROUPS_EXCLUDE)
        if failed and syncs is not None:
            self._write("sync.group.offsets.enabled", False, syncs, note="decide on the groups first")
            self._ledger.decide(syncs, "it is off until the groups are decided on")
        elif syncs is not None:
            self._convert("sync.group.offsets.enabled")

    def _groups(self, key: str) -> int:
        """Writes a list of groups. Returns how many entries could not be translated."""
        given = self._flow.settings.get(key)
        if given is None:
            return 0
        found = self._entries(given, (), "groups")
        if found.failed:
            self._ledger.decide(given, f"could not be translated: {', '.join(found.failed)}")
        if found.entries or (key == names.GROUPS_EXCLUDE and not found.failed):
            self._write(names.FLOWS[key].becomes, found.entries, given, note="; ".join(found.notes))
        elif not found.failed:
            self._ledger.decide(given, "it names no group: leave sync.group.offsets.enabled out, or name groups")
        return len(found.failed)

    def _configs(self) -> None:
        given = self._flow.settings.get(names.CONFIGS_EXCLUDE)
        if given is None:
            return
        found = self._entries(given, (), "configs")
        if found.failed:
            self._ledger.decide(given, f"could not be translated ({', '.join(found.failed)}): see sync.topic.configs")
            return
        left = tuple(
            name
            for name in SYNCED_TOPIC_CONFIGS
            if not any(topic_pattern(each).fullmatch(name) for each in found.entries)
        )
        if left == SYNCED_TOPIC_CONFIGS:
            self._ledger.not_needed(given, "sync.topic.configs lists what is copied, and it has none of these")
        else:
            self._write("sync.topic.configs", left, given, note="what is copied by default, without what is excluded")

    def _read(self) -> None:
        source = self._inputs.clusters[self._flow.source].settings
        found = [
            self._flow.clients.get(("consumer", ISOLATION)), self._flow.clients.get(("", ISOLATION)),
            source.get(("consumer", ISOLATION)), source.get(("", ISOLATION)),
        ]  # fmt: skip
        given = next((each for each in found if each is not None), None)
        if given is None:
            return
        level = given.value.strip().lower()
        if level in ("read_committed", "read_uncommitted"):
            self._write("isolation.level", level, given)
        else:
            self._ledger.decide(given, "write read_committed or read_uncommitted")

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        for key, given in self._flow.settings.items():
            rule = lookup.of_connector(key)
            if key in _WORKED_OUT or rule is None:
                continue
            if rule.becomes:
                self._convert(key)
            else:
                accounting.by_rule(self._ledger, given, rule)
        for (client, key), given in self._flow.clients.items():
            if not self._ledger.is_open(given):
                continue
            rule = lookup.of_client(key)
            if rule is not None:
                accounting.by_rule(self._ledger, given, rule)
            elif key == ISOLATION:
                self._ledger.not_needed(
                    given, f"only what the source's consumer has counts, and this is for the {client or 'others'}"
                )
            elif key in CLUSTERS:
                self._ledger.decide(
                    given, "a connection's settings belong to a cluster here, and hold for all of its flows"
                )
            else:
                self._ledger.decide(given, "how connections are protected belongs to a cluster here")

    def _convert(self, key: str) -> None:
        given, rule = self._flow.settings[key], names.FLOWS[key]
        try:
            self._write(rule.becomes, self._converted(rule, given), given)
        except NotConverted as error:
            self._ledger.decide(given, str(error))

    def _converted(self, rule: Rule, given: Given) -> str | int | bool:
        if rule.how is How.ENTRIES:
            raise AssertionError("lists are worked out one by one")
        return converted(
            rule.how, given.value, self._inputs.providers, references.variable(self._flow.name, rule.becomes)
        )
