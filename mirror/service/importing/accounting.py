"""Functions that readers and makers share: account for a key that is not taken over, and refuse an input."""

from mirror.service.config.errors import ConfigError, ConfigFinding
from mirror.service.importing.model import Given, Ledger
from mirror.service.importing.settings.rule import Rule


def refuse(file: str, line: int | None, problem: str, remedy: str, key: str = "") -> ConfigError:
    """Returns the error for an input that cannot be imported."""
    return ConfigError([ConfigFinding(file=file, line=line, key=key, problem=problem, remedy=remedy)])


def by_rule(ledger: Ledger, given: Given, rule: Rule) -> None:
    """Accounts for a key that has no counterpart here: by its rule, it is not needed or needs a decision."""
    if rule.fine is None or given.value.strip().lower() in rule.fine:
        ledger.not_needed(given, rule.why)
    else:
        ledger.decide(given, rule.otherwise)
