"""The expressions of the committed dashboards, as Grafana sends them to Prometheus."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from deploy.grafana.generate import FOLDER

VALUES = {
    "$__rate_interval": "10s",
    "$job": "mirror",
    "$source": ".*",
    "$target": ".*",
    "$topic": ".*",
    "$instance": ".*",
}
"""What Grafana puts in the place of variables: everything selected, and a scrape every second."""


class Shown(NamedTuple):
    """One expression of a dashboard."""

    board: str
    """The dashboard's uid."""
    panel: str
    expression: str
    """With variables."""

    @property
    def sent(self) -> str:
        """With the variables' values."""
        found = self.expression
        for name, value in VALUES.items():
            found = found.replace(name, value)
        return found


def committed() -> dict[str, dict[str, Any]]:
    """File name -> dashboard."""
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(FOLDER).glob("*.json"))}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """A dashboard's panels, without headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def shown() -> list[Shown]:
    """Every expression of every dashboard: panels', and annotations' (their panel is "annotation: " and the name)."""
    found = []
    for board in committed().values():
        for panel in panels(board):
            found += [Shown(board["uid"], panel["title"], target["expr"]) for target in panel["targets"]]
        marks = board["annotations"]["list"]
        found += [Shown(board["uid"], f"annotation: {mark['name']}", mark["expr"]) for mark in marks]
    return found
