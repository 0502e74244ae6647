"""The expressions of the committed dashboards, as Grafana sends them to Prometheus."""

import json
import re
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
        return filled(self.expression)


def filled(expression: str) -> str:
    """The expression with the variables' values."""
    for name, value in VALUES.items():
        expression = expression.replace(name, value)
    return expression


def committed() -> dict[str, dict[str, Any]]:
    """File name -> dashboard."""
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(FOLDER).glob("*.json"))}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """A dashboard's panels, without headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def variables() -> set[tuple[str, str]]:
    """Series and label of which a variable's values are, as Prometheus is asked for them."""
    asked = [each for board in committed().values() for each in board["templating"]["list"] if each["type"] == "query"]
    found = [re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]) for each in asked]
    return {(filled(each[1]), each[2]) for each in found if each is not None}


def shown() -> list[Shown]:
    """Every expression of every dashboard: panels', and annotations' (their panel is "annotation: " and the name)."""
    found = []
    for board in committed().values():
        for panel in panels(board):
            found += [Shown(board["uid"], panel["title"], target["expr"]) for target in panel["targets"]]
        marks = board["annotations"]["list"]
        found += [Shown(board["uid"], f"annotation: {mark['name']}", mark["expr"]) for mark in marks]
    return found
