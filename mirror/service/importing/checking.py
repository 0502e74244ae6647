"""Checks the configuration that was made by loading it. Optional settings that are refused are left out; every refused
setting needs a decision."""

import re
import tempfile
from pathlib import Path

from mirror.service.config import ConfigError, ConfigFinding, load
from mirror.service.importing.model import Outcome, Setting
from mirror.service.importing.writing import lines, path_text, value_text

_REFERENCE = re.compile(r"(?<!\$)\$\{(?:env|file):[^}]*\}")
_OPTIONAL = re.compile(r"client\.(id|rack)|.*\.(ms|bytes)|replication\.factor|sync\..*\.enabled|sync\.topic\.configs")
"""Optional settings: without them, a flow copies the same records."""
_ROUNDS_MAX = 50
_FILE = "example"


def check(outcome: Outcome) -> None:
    """Loads the configuration that was made, with example values for ``${...}``, again and again until no more optional
    settings are refused. Everything that is still refused becomes a decision; ``mirror validate`` would report it,
    too."""
    for _ in range(_ROUNDS_MAX):
        refused = _refused(outcome)
        optional = [
            (setting, finding) for setting, finding in refused if setting and _OPTIONAL.fullmatch(setting.path[-1])
        ]
        for setting, finding in optional:
            if setting not in outcome.settings:
                continue
            outcome.settings.remove(setting)
            for given in setting.given:
                outcome.ledger.decide(
                    given, f"left out, because its value is refused as {path_text(setting.path)}: {finding.remedy}"
                )
            if not setting.given:
                outcome.ledger.remark(f"{path_text(setting.path)} is left out: {finding.problem}")
        if not optional:
            for at, finding in refused:
                _tell(outcome, at, finding)
            return


def _tell(outcome: Outcome, setting: Setting | None, finding: ConfigFinding) -> None:
    # A cluster's problem may repeat a value that must not be shown. A flow's problem only has names of topics.
    why = finding.remedy if finding.key.startswith("clusters") else f"{finding.problem}; {finding.remedy}"
    if setting is not None and setting.given:
        for given in setting.given:
            outcome.ledger.decide(given, f"refused as {path_text(setting.path)}: {why}")
    else:
        outcome.ledger.remark(f"{finding.key} is refused: {why}")


def _refused(outcome: Outcome) -> list[tuple[Setting | None, ConfigFinding]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mirror.yaml"
        written = list(lines(outcome, _Example()))
        (Path(folder) / _FILE).touch()
        path.write_text("\n".join(line for line, _ in written) + "\n", encoding="utf-8")
        try:
            load(path, env={})
        except ConfigError as error:
            return [(_at(written, finding), finding) for finding in error.findings]
    return []


def _at(written: list[tuple[str, Setting | None]], finding: ConfigFinding) -> Setting | None:
    """Returns the setting in the line of a finding, if there is one: the refused one, or one that contradicts it."""
    return written[finding.line - 1][1] if finding.line else None


class _Example:
    """Returns values as YAML, with example texts instead of references (``${...}``)."""

    def __init__(self) -> None:
        self._hosts = 0

    def __call__(self, setting: Setting) -> str | None:
        value, key = setting.value, setting.path[-1]
        if key.endswith(".location"):  # the user may not have converted the file yet
            return _FILE
        if not isinstance(value, str) or not _REFERENCE.search(value):
            return value_text(setting)
        if key.endswith((".ms", ".bytes", ".factor", ".enabled")):
            return None
        self._hosts += 1
        example = f"host{self._hosts}"
        if key == "bootstrap.servers" and _REFERENCE.fullmatch(value):
            example += ":9092"
        if key.endswith(".url") and value.startswith("$"):
            example = f"https://{example}"
        shown = _REFERENCE.sub(example, value)
        return value_text(Setting(path=setting.path, value=shown))
