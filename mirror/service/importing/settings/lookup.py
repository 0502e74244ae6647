"""Finds the rule for a key, and for an unknown key a similar one that may have been meant."""

import difflib
import re
from collections.abc import Mapping

from mirror.service.importing.settings.clients import CLIENTS, CLUSTERS, FLOW_OF_SOURCE
from mirror.service.importing.settings.flows import CONNECTOR_PREFIXES, FLOWS, RENAMED
from mirror.service.importing.settings.protection import MADE, PROTECTION
from mirror.service.importing.settings.rule import Rule
from mirror.service.importing.settings.workers import WORKER_PREFIXES, WORKERS

_SCOPE = re.compile(r"(?:source\.|target\.)?(consumer|producer|admin)\.(?:override\.)?(?=.)")
_PLAIN_SCOPE = re.compile(r"(?:source|target)\.cluster\.(?=.)")
_SPELLED_AS_KEYS = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)+")
CLIENT_KEYS = frozenset([*CLUSTERS, *FLOW_OF_SOURCE, *CLIENTS, *PROTECTION, *MADE])


def of_connector(key: str) -> Rule | None:
    """Returns the rule for a connector's key with its current name; None if there is none."""
    return FLOWS.get(RENAMED.get(key, key)) or _by_prefix(key, CONNECTOR_PREFIXES)


def of_worker(key: str) -> Rule | None:
    """Returns the rule for a key of the MirrorMaker 2 process, or of a Kafka Connect worker; None if there is none."""
    return WORKERS.get(key) or _by_prefix(key, WORKER_PREFIXES)


def of_client(key: str) -> Rule | None:
    """Returns the rule for a client's key without a counterpart; None if there is none."""
    return CLIENTS.get(key) or PROTECTION.get(key)


def of_protection(key: str) -> Rule | None:
    """Returns the rule for a key of TLS or SASL without a counterpart; None if there is none."""
    return PROTECTION.get(key)


def scoped(key: str) -> tuple[str, str]:
    """Returns the client that a key is for, and the key without its prefix. The client is consumer, producer or admin;
    empty if the key is for all clients, or not for clients."""
    match = _SCOPE.match(key)
    if match:
        return match[1], key[match.end() :]
    match = _PLAIN_SCOPE.match(key)
    return "", key[match.end() :] if match else key


def near(key: str) -> str:
    """Returns a known key that is similar to this one, or an empty string."""
    known = [*FLOWS, *RENAMED, *WORKERS, *CLIENT_KEYS]
    return next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.85)), "")


def may_be_shown(key: str, value: str) -> bool:
    """Returns True if a key may be shown in the output. If a secret stands in a line of its own by mistake, its first
    part is read as a key."""
    _, rest = scoped(key)
    known = of_connector(rest) or of_worker(rest) or rest in CLIENT_KEYS
    return bool(known) or (value != "" and _SPELLED_AS_KEYS.fullmatch(rest) is not None)


def _by_prefix(key: str, rules: Mapping[str, Rule]) -> Rule | None:
    return next((rule for prefix, rule in rules.items() if key.startswith(prefix) and key != prefix), None)
