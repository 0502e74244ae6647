"""Reads the ``mm2.properties`` of MirrorMaker 2's dedicated mode: keys of clusters, of flows, and of all of them."""

from mirror.service.importing import accounting
from mirror.service.importing.model import ClusterInput, FlowInput, Given, Inputs, Ledger
from mirror.service.importing.read import properties, scopes
from mirror.service.importing.settings import flows, lookup
from mirror.service.importing.settings.protection import MADE
from mirror.service.importing.settings.workers import CLUSTERS, PROVIDERS
from mirror.service.importing.translate.patterns import split

_AT_THE_TOP = "MirrorMaker 2 ignores it at the top: a client's settings stand behind a cluster's alias"
_SHARED = frozenset([*MADE, "bootstrap.servers"])
"""Settings of clients that apply to all clusters if they stand at the top."""


def read(file: str, raw: bytes) -> Inputs:
    """Parses the file.

    Raises:
        ConfigError: it is not such a file, names no clusters, or enables no flow.
    """
    inputs = Inputs(file=file, ledger=Ledger())
    given = _last_of_each(inputs.ledger, properties.read(file, raw))
    named = given.pop(CLUSTERS, None)
    aliases = list(dict.fromkeys(split(named.value))) if named else []
    if named is None or len(aliases) < 2:
        line = named.line if named else None
        raise accounting.refuse(
            file, line, "names no two clusters", "write clusters = a, b, as MirrorMaker 2 needs it", CLUSTERS
        )
    inputs.ledger.taken(named)
    inputs.clusters = {alias: ClusterInput(alias=alias, line=named.line) for alias in aliases}
    sorted_keys = _Sorted(inputs, given)
    for key in given:
        sorted_keys.put(key)
    sorted_keys.flows()
    if not inputs.flows:
        raise accounting.refuse(
            file, named.line, "enables no flow", "write a->b.enabled = true for one that is to be copied"
        )
    return inputs


def _last_of_each(ledger: Ledger, found: list[properties.Property]) -> dict[str, Given]:
    """Returns key -> the last one with this key: as in Java, only that counts."""
    given: dict[str, Given] = {}
    for each in found:
        shown = lookup.may_be_shown(each.key.rpartition("->")[2].partition(".")[2] or each.key, each.value)
        shown = shown or lookup.may_be_shown(each.key, each.value)
        now = Given(name=each.key, value=each.value, line=each.line, shown=shown)
        ledger.add(now)
        if before := given.pop(each.key, None):
            ledger.not_needed(before, f"it stands again in line {each.line}, and the last one counts")
        given[each.key] = now
    return given


class _Sorted:
    """Sorts the keys by what they are for: clusters, flows, or all of them."""

    def __init__(self, inputs: Inputs, given: dict[str, Given]) -> None:
        self._inputs = inputs
        self._ledger = inputs.ledger
        self._given = given
        self._top: dict[str, Given] = {}
        self._pairs: dict[tuple[str, str], dict[str, Given]] = {}
        self._aliases = sorted(inputs.clusters, key=len, reverse=True)

    def put(self, key: str) -> None:
        """Sorts one key."""
        given = self._given[key]
        if "->" in key:
            self._put_pair(key, given)
        elif lookup.of_connector(key):
            self._top[key] = given
        elif key in _SHARED:
            self._inputs.shared[key] = given
        elif alias := next((each for each in self._aliases if key.startswith(f"{each}.")), ""):
            scopes.to_cluster(self._ledger, self._inputs.clusters[alias], key[len(alias) + 1 :], given)
        else:
            self._put_top(key, given)

    def _put_pair(self, key: str, given: Given) -> None:
        for source in self._aliases:
            for destination in self._aliases:
                prefix = f"{source}->{destination}."
                if source != destination and key.startswith(prefix):
                    self._pairs.setdefault((source, destination), {})[key[len(prefix) :]] = given
                    return
        self._ledger.decide(given, f"no such flow: {CLUSTERS} does not name both of its clusters")

    def _put_top(self, key: str, given: Given) -> None:
        provider = key.removeprefix(f"{PROVIDERS}.").removesuffix(".class")
        if key == f"{PROVIDERS}.{provider}.class":
            self._inputs.providers[provider] = given.value.strip()
        client, rest = lookup.scoped(key)
        rule = None if client else lookup.of_worker(rest) or lookup.of_protection(rest)
        if rule is not None:
            accounting.by_rule(self._ledger, given, rule)
        elif rest in lookup.CLIENT_KEYS:
            self._ledger.not_needed(given, _AT_THE_TOP)
        else:
            scopes.unknown(self._ledger, given, rest)

    def flows(self) -> None:
        """Makes the flows that are enabled, and accounts for the keys of those that are not."""
        default = self._top.get(flows.ENABLED)
        aliases = list(self._inputs.clusters)
        pairs = [(source, destination) for source in aliases for destination in aliases if source != destination]
        for source, destination in pairs:
            own = self._pairs.get((source, destination), {})
            enabled = own.get(flows.ENABLED, default)
            if enabled is None or enabled.value.strip().lower() != "true":
                self._leave_out(f"{source}->{destination}", own)
                continue
            flow = FlowInput(source=source, destination=destination, line=enabled.line)
            self._inputs.flows[flow.name] = flow
            self._inputs.clusters[source].is_source = True
            self._inputs.clusters[destination].is_destination = True
            for key in _newest_first(own):
                scopes.to_flow(self._ledger, flow, key, own[key])
            for key in _newest_first(self._top):
                name = flows.RENAMED.get(key, key)
                if key in flows.IGNORED:
                    self._ledger.not_needed(self._top[key], flows.IGNORED[key])
                elif name not in flow.settings:
                    flow.settings[name] = self._top[key]

    def _leave_out(self, name: str, own: dict[str, Given]) -> None:
        for given in own.values():
            self._ledger.not_needed(given, f"{name} is not enabled, so it is left out")


def _newest_first(keys: dict[str, Given]) -> list[str]:
    """Returns the keys, those with current names first: if an older name of the same setting stands beside it,
    MirrorMaker 2 uses the current one."""
    return sorted(keys, key=lambda key: key in flows.RENAMED)
