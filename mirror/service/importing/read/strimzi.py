"""Reads Strimzi's ``KafkaMirrorMaker2`` resource, of its API v1beta2 (``spec.clusters``) and v1 (``spec.target``)."""

from collections.abc import Mapping
from typing import Any

from mirror.service.config import ConfigError
from mirror.service.config.document import Document, read_document
from mirror.service.config.errors import Path, key_text
from mirror.service.importing import accounting
from mirror.service.importing.model import ClusterInput, FlowInput, Given, Inputs, Ledger
from mirror.service.importing.read import scopes
from mirror.service.importing.read.authentication import Authentication
from mirror.service.importing.settings import lookup
from mirror.service.importing.settings import strimzi as tables
from mirror.service.importing.settings.rule import Rule

KIND = "KafkaMirrorMaker2"
_ENDS = ("sourceCluster", "targetCluster", "source", "target")
_CONNECTORS = ("sourceConnector", "checkpointConnector", "heartbeatConnector")
_UNKNOWN = "unknown: this version knows no such part of the resource"


def read(file: str) -> Inputs:
    """Parses the resource. Such a file normally has no values of secrets; if it has one, messages do not repeat it.

    Raises:
        ConfigError: the resource is not valid, or names no clusters and mirrors.
    """
    document = read_document(file, None)
    if document.findings:
        raise ConfigError(document.findings)
    if not isinstance(document.data, dict) or document.data.get("kind") != KIND:
        raise accounting.refuse(file, 1, f"is not one resource of kind {KIND}", "write the resource alone into a file")
    return _Resource(document).inputs()


class _Resource:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._inputs = Inputs(file=document.file, ledger=Ledger())
        self._ledger = self._inputs.ledger

    def inputs(self) -> Inputs:
        spec = self._mapping(("spec",), self._document.data.get("spec"))
        for key, value in self._document.data.items():
            if key != "spec":
                self._by_table((key,), value, tables.RESOURCE)
        for key, value in spec.items():
            if key == "clusters":
                for path, cluster in self._items(("spec", key), value):
                    self._cluster(path, cluster)
            elif key == "target":
                self._cluster(("spec", key), self._mapping(("spec", key), value), tables.TARGET)
            elif key != "mirrors":
                self._by_table(("spec", key), value, tables.SPEC)
        for path, mirror in self._items(("spec", "mirrors"), spec.get("mirrors")):
            self._mirror(path, mirror, self._alias_of_target(spec))
        if not self._inputs.flows:
            raise self._refuse(("spec",), "copies nothing: no mirror has a sourceConnector", "write spec.mirrors")
        return self._inputs

    # -- clusters ----------------------------------------------------------------------------------------------------

    def _cluster(self, path: Path, found: Mapping[str, Any], more: Mapping[str, Rule] | None = None) -> str:
        """Reads a cluster. Returns its alias."""
        alias = str(found.get("alias") or "")
        if not alias:
            raise self._refuse(path, "has no alias", "write alias")
        cluster = ClusterInput(alias=alias, line=self._document.line(path))
        if alias in self._inputs.clusters:
            raise self._refuse(path, f"is a second cluster {alias}", "give each its own alias")
        self._inputs.clusters[alias] = cluster
        for key, value in found.items():
            here = (*path, key)
            if key == "alias":
                self._ledger.taken(self._given(here, value))
            elif key == "bootstrapServers":
                cluster.settings["", "bootstrap.servers"] = self._given(here, value)
            elif key == "config":
                for name, each in self._mapping(here, value).items():
                    scopes.to_cluster(self._ledger, cluster, name, self._given((*here, name), each, name))
            elif key not in ("tls", "authentication"):
                self._by_table(here, value, more or {})
        Authentication(self._ledger, cluster, self._given).read(path, found)
        return alias

    # -- mirrors -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _alias_of_target(spec: Mapping[str, Any]) -> str:
        target = spec.get("target")
        return str(target.get("alias") or "") if isinstance(target, dict) else ""

    def _mirror(self, path: Path, found: Mapping[str, Any], target: str) -> None:
        ends, line = self._ends(path, found, target), self._document.line(path)
        for alias, what in zip(ends, ("source", "target"), strict=True):
            if alias not in self._inputs.clusters:
                raise self._refuse(path, f"its {what} is no cluster of this resource", "name one by its alias")
        flow = FlowInput(source=ends[0], destination=ends[1], line=line)
        if flow.name in self._inputs.flows:
            raise self._refuse(path, f"is a second mirror {flow.name}", "put their topics into one mirror")
        for key, value in found.items():
            if key in tables.PATTERNS:
                scopes.to_flow(self._ledger, flow, tables.PATTERNS[key], self._given((*path, key), value))
        for key in _CONNECTORS:
            self._connector(flow, (*path, key), self._mapping((*path, key), found.get(key)))
        for key in found:
            if key not in (*tables.PATTERNS, *_CONNECTORS, *_ENDS):
                self._by_table((*path, key), found[key], {})
        if "sourceConnector" not in found:
            for given in [*flow.settings.values(), *flow.clients.values()]:
                self._ledger.not_needed(
                    given, f"this mirror has no sourceConnector, so {flow.name} copies nothing and is left out"
                )
            return
        self._inputs.flows[flow.name] = flow
        self._inputs.clusters[flow.source].is_source = True
        self._inputs.clusters[flow.destination].is_destination = True

    def _ends(self, path: Path, found: Mapping[str, Any], target: str) -> list[str]:
        """Returns the aliases of a mirror's source and target. ``target``: alias of the resource's target, if it has
        one."""
        ends = []
        for key, other in (("sourceCluster", "source"), ("targetCluster", "target")):
            if isinstance(found.get(other), dict):
                ends.append(self._cluster((*path, other), found[other]))
            elif key in found:
                self._ledger.taken(self._given((*path, key), found[key]))
                ends.append(str(found[key]))
            else:
                ends.append(target if other == "target" else "")
        return ends

    def _connector(self, flow: FlowInput, path: Path, found: Mapping[str, Any]) -> None:
        for key, value in found.items():
            here = (*path, key)
            if key == "config":
                for name, each in self._mapping(here, value).items():
                    scopes.to_flow(self._ledger, flow, name, self._given((*here, name), each, name))
            elif key in ("state", "pause"):
                given = self._given(here, value)
                if given.value.lower() in ("running", "false"):
                    self._ledger.not_needed(given, "a flow runs unless enabled: false says otherwise")
                elif path[-1] == "sourceConnector":
                    flow.off = f"{key_text(here)} is {given.value.lower()}" if given.value.isalpha() else key_text(here)
                    self._ledger.decide(given, "the flow is written with enabled: false; remove that when it is to run")
                else:
                    self._ledger.not_needed(given, "what this connector does has settings of its own here")
            else:
                self._by_table(here, value, tables.CONNECTOR)

    # -- keys --------------------------------------------------------------------------------------------------------

    def _by_table(self, path: Path, value: object, table: Mapping[str, Rule]) -> None:
        rule, given = table.get(str(path[-1])), self._given(path, value)
        if rule is None:
            self._ledger.decide(given, _UNKNOWN)
        else:
            accounting.by_rule(self._ledger, given, rule)

    def _given(self, path: Path, value: object, key: str = "") -> Given:
        """Returns the key at a path of the resource. ``key``: its name, if it is a key of MirrorMaker 2."""
        text = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
        shown = not key or lookup.may_be_shown(key, text)
        return self._ledger.add(Given(name=key_text(path), value=text, line=self._document.line(path), shown=shown))

    def _refuse(self, path: Path, problem: str, remedy: str) -> ConfigError:
        return accounting.refuse(self._document.file, self._document.line(path), problem, remedy, key_text(path))

    def _mapping(self, path: Path, value: object) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._refuse(path, "must be a mapping of keys and values", "see Strimzi's reference")
        return value

    def _items(self, path: Path, value: object) -> list[tuple[Path, dict[str, Any]]]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._refuse(path, "must be a list", "see Strimzi's reference")
        return [((*path, number), self._mapping((*path, number), each)) for number, each in enumerate(value)]
