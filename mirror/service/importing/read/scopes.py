"""Sorts the keys of a cluster and of a flow: those of the flow itself, those of its clients, and those that are not
needed."""

from mirror.service.importing.accounting import by_rule
from mirror.service.importing.model import ClusterInput, Fate, FlowInput, Given, Ledger
from mirror.service.importing.settings import lookup
from mirror.service.importing.settings.flows import IGNORED, RENAMED

UNKNOWN = "unknown: neither MirrorMaker 2 nor Kafka Connect nor Kafka's clients have it, as far as this version knows"
_OF_A_CLUSTER = "MirrorMaker 2 ignores it here: it stands at the top, or behind a flow"


def unknown(ledger: Ledger, given: Given, key: str) -> None:
    """Accounts for a key that is in no table. ``key``: without the prefix of the cluster or flow."""
    meant = lookup.near(key)
    ledger.decide(given, f"{UNKNOWN}; is {meant} meant?" if meant else UNKNOWN)


def to_cluster(ledger: Ledger, cluster: ClusterInput, key: str, given: Given) -> None:
    """Sorts a key with a cluster's alias as prefix. ``key``: without the prefix."""
    client, rest = lookup.scoped(key)
    if rest in lookup.CLIENT_KEYS:
        cluster.settings.setdefault((client, rest), given)
    elif not client and (rule := lookup.of_worker(rest)):
        by_rule(ledger, given, rule)
    elif not client and lookup.of_connector(rest):
        ledger.not_needed(given, _OF_A_CLUSTER)
    else:
        unknown(ledger, given, rest)


def to_flow(ledger: Ledger, flow: FlowInput, key: str, given: Given) -> None:
    """Sorts a key with a flow as prefix. ``key``: without the prefix. The first one of a name counts."""
    if key in IGNORED:
        ledger.not_needed(given, IGNORED[key])
        return
    if lookup.of_connector(key):
        name = RENAMED.get(key, key)
        _first_counts(ledger, flow.settings.setdefault(name, given), given)
        return
    client, rest = lookup.scoped(key)
    if rest in lookup.CLIENT_KEYS and rest != key:
        _first_counts(ledger, flow.clients.setdefault((client, rest), given), given)
    elif rule := (None if client else lookup.of_worker(rest) or lookup.of_client(rest)):
        by_rule(ledger, given, rule)
    elif rest in lookup.CLIENT_KEYS:
        ledger.decide(given, "a connection's settings belong to a cluster here, and hold for all of its flows")
    else:
        unknown(ledger, given, rest)


def _first_counts(ledger: Ledger, first: Given, given: Given) -> None:
    if first == given:
        return
    if first.value == given.value:
        ledger.not_needed(given, f"the same as in line {first.line}")
    else:
        ledger.account(given, Fate.DECIDE, f"differs from line {first.line}, which was taken")
