"""Makes the mirror's configuration from the input: clusters first, then flows. In the end, every key is accounted
for."""

import re

from mirror.service.importing import accounting
from mirror.service.importing.make import protection
from mirror.service.importing.make.flows import Flow, Offsets
from mirror.service.importing.make.picking import Picked
from mirror.service.importing.model import ClusterInput, Inputs, Outcome, Setting
from mirror.service.importing.settings import lookup
from mirror.service.importing.settings.clients import BOOTSTRAP, CLUSTERS
from mirror.service.importing.translate import references
from mirror.service.importing.translate.values import NotConverted, converted

_LISTENER = re.compile(r"(^|,)\s*[A-Za-z0-9_.%-]*://")
"""A prefix before an address that Kafka's clients accept and ignore (such as ``PLAINTEXT://``)."""


def assemble(inputs: Inputs, *, offsets: Offsets | None = None) -> Outcome:
    """Returns the configuration to write. ``offsets``: value of ``offsets`` for all flows; None: chosen for each flow.

    Raises:
        ConfigError: a cluster that a flow needs has no addresses.
    """
    outcome = Outcome(file=inputs.file, ledger=inputs.ledger)
    for cluster in inputs.clusters.values():
        outcome.settings += _cluster(inputs, cluster)
    for flow in inputs.flows.values():
        made = Flow(inputs, flow, offsets)
        outcome.settings += made.settings
        outcome.note(("flows", flow.name), made.notes)
    _account_for_the_rest(inputs)
    return outcome


def _cluster(inputs: Inputs, cluster: ClusterInput) -> list[Setting]:
    picked = Picked(inputs, cluster)
    made = {setting.path[-1] for setting in cluster.made}
    if BOOTSTRAP not in made and picked(BOOTSTRAP) is None:
        if cluster.is_source or cluster.is_destination:
            raise accounting.refuse(
                inputs.file,
                cluster.line,
                "has no addresses of brokers",
                f"write {cluster.alias}.{BOOTSTRAP}",
                cluster.alias,
            )
        for given in cluster.settings.values():
            inputs.ledger.not_needed(given, "no flow uses this cluster, which has no addresses of brokers")
        return []
    found = []
    for key, rule in CLUSTERS.items():
        chosen = picked(key)
        if chosen is None or rule.becomes in made:
            continue
        value = _LISTENER.sub(r"\1", chosen.value) if key == BOOTSTRAP else chosen.value
        name = references.variable(cluster.alias, rule.becomes)
        try:
            setting = Setting(
                path=("clusters", cluster.alias, rule.becomes),
                value=converted(rule.how, value, inputs.providers, name),
                given=(chosen,),
            )
        except NotConverted as error:
            inputs.ledger.decide(chosen, str(error))
            continue
        inputs.ledger.taken(chosen)
        found.append(setting)
    protected = protection.settings_of(inputs, cluster, picked)
    for (_, key), given in cluster.settings.items():
        nothing = lookup.of_client(key)
        if nothing is not None and inputs.ledger.is_open(given):
            accounting.by_rule(inputs.ledger, given, nothing)
    return sorted([*found, *protected], key=lambda setting: setting.path[-1] != BOOTSTRAP)


def _account_for_the_rest(inputs: Inputs) -> None:
    for given in list(inputs.ledger.open()):
        inputs.ledger.not_needed(
            given, "nothing uses it: each flow or cluster has its own, or it is for a side that no flow has"
        )
