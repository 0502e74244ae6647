"""Chooses one value for a cluster where the input has several, one for each client: here, all connections to a cluster
have the same settings."""

from mirror.service.importing.model import ClusterInput, Given, Inputs

_CLIENTS = ("", "consumer", "producer", "admin")


class Picked:
    """Chooses the value of a key: one for the cluster's alias has precedence over one for a single client, and that
    over one for all clusters."""

    def __init__(self, inputs: Inputs, cluster: ClusterInput) -> None:
        self._inputs = inputs
        self._cluster = cluster
        self._seen: dict[str, Given | None] = {}

    def __call__(self, key: str) -> Given | None:
        """Returns the chosen key with its value, or None. Other keys with a different value become decisions."""
        if key not in self._seen:
            self._seen[key] = self._choose(key)
        return self._seen[key]

    def _choose(self, key: str) -> Given | None:
        found = [given for client in _CLIENTS if (given := self._cluster.settings.get((client, key)))]
        if not found:
            return self._inputs.shared.get(key)
        for other in found[1:]:
            if other.value == found[0].value:
                self._inputs.ledger.not_needed(other, f"the same as in line {found[0].line}")
            else:
                self._inputs.ledger.decide(
                    other,
                    f"differs from line {found[0].line}: here, all connections to a cluster have the same settings",
                )
        return found[0]
