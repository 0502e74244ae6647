"""Panels, queries and variables as all dashboards have them."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders import prometheus as queries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import prometheus as query_model

RULES = Path(__file__).resolve().parents[2] / "mirror" / "configs" / "alerts.yaml"
DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
WHOLE, HALF, THIRD, QUARTER, EIGHTH = 24, 12, 8, 6, 3
GREEN, RED = "green", "red"

# Labels by which the variables select. up and process_* are not ours alone, so that every selector has the job.
JOB = 'job=~"$job"'
FLOW = f'{JOB},source=~"$source",target=~"$target"'
TOPIC = f'{FLOW},topic=~"$topic"'
PROCESS = f'{JOB},instance=~"$instance"'
BY_PARTITION = "by (source, target, topic, partition)"

Panel = timeseries.Panel | stat.Panel | table.Panel


class Query(NamedTuple):
    """An expression of PromQL, and the legend of what it returns; ``{{label}}`` stands for a label's value."""

    expression: str
    legend: str = ""


def rate(metric: str, labels: str) -> str:
    """Returns how fast a counter grows, per second, over what Grafana takes for a fitting interval."""
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def quantile(part: float, metric: str, labels: str, by: str) -> str:
    """Returns the value below which this part of a histogram's values is, by these labels (``"cluster, api"``).
    There is none while nothing is counted."""
    counted = f"sum by ({by}) ({rate(f'{metric}_count', labels)}) > 0"
    return f"histogram_quantile({part}, sum by ({by}, le) ({rate(f'{metric}_bucket', labels)})) and on ({by}) {counted}"


def or_zero(expression: str) -> str:
    """Returns an expression that is 0 where nothing has been counted yet, while a mirror answers."""
    # Whatever labels it has: without "on", 0 would be one more series for good.
    return f"{expression} or on () 0 * max(mirror_ready{{{JOB}}})"


@cache
def limit(alert: str) -> float:
    """Returns the number with which the alert of this name compares. One place has it: the shipped rules.

    Raises:
        ValueError: there is no such alert, or it compares with no number at its end.
    """
    rule = re.search(
        rf"- alert: {alert}\n(?:(?!- alert:).)*?expr: (.+?)\n +(?:for|labels):", RULES.read_text(), re.DOTALL
    )
    number = re.search(r"[<>=] (-?[\d.]+)\Z", rule[1].strip()) if rule else None
    if number is None:
        raise ValueError(f"alert {alert} has no limit at the end of its expression")
    return float(number[1])


def graph(
    title: str, unit: str, *shown: Query, text: str, width: int = THIRD, alert: str = "", stacked: bool = False
) -> Panel:
    """Returns a graph over time. ``unit``: Grafana's id. ``alert``: the alert whose limit is drawn as a line."""
    panel = timeseries.Panel().title(title).description(text).unit(unit).span(width).height(8).min(0)
    panel = panel.datasource(DATASOURCE).fill_opacity(10).line_width(1).show_points(common_model.VisibilityMode.NEVER)
    panel = panel.tooltip(
        common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI).sort(common_model.SortOrder.DESCENDING)
    )
    panel = panel.legend(
        common.VizLegendOptions()
        .display_mode(common_model.LegendDisplayMode.LIST)
        .placement(common_model.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL))
    if alert:
        panel = panel.thresholds(_steps((GREEN, None), (RED, limit(alert))))
        panel = panel.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(common_model.GraphThresholdsStyleMode.DASHED)
        )
    return panel.targets([_target(at, query) for at, query in enumerate(shown)])


def figure(
    title: str, unit: str, expression: str, *, text: str, bad_from: float | None = None, good_from: float | None = None
) -> Panel:
    """Returns one large number. It is red from ``bad_from`` on, or below ``good_from``."""
    steps = _steps((GREEN, None))
    if bad_from is not None:
        steps = _steps((GREEN, None), (RED, bad_from))
    elif good_from is not None:
        steps = _steps((RED, None), (GREEN, good_from))
    panel = stat.Panel().title(title).description(text).unit(unit).span(EIGHTH).height(4).datasource(DATASOURCE)
    panel = panel.thresholds(steps).color_mode(common_model.BigValueColorMode.VALUE)
    panel = panel.graph_mode(common_model.BigValueGraphMode.AREA)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.targets([_target(0, Query(expression))])


def rows(title: str, unit: str, expression: str, *, text: str, hidden: Sequence[str] = (), width: int = HALF) -> Panel:
    """Returns a table of the series that there are now, by their labels but those that are ``hidden``."""
    panel = table.Panel().title(title).description(text).unit(unit).span(width).height(8).datasource(DATASOURCE)
    gone = dict.fromkeys(("Time", "__name__", "job", *hidden), True)
    panel = panel.with_transformation(
        model.DataTransformerConfig(id_val="organize", options={"excludeByName": gone, "renameByName": {}})
    )
    target = queries.Dataquery().expr(expression).instant().format(query_model.PromQueryFormat.TABLE).ref_id("A")
    return panel.targets([target.datasource(DATASOURCE)])


def row(title: str) -> boards.Row:
    """Returns a heading for the panels that follow."""
    return boards.Row(title)


def selection(name: str, label: str, query: str, *, others: bool = True) -> boards.QueryVariable:
    """Returns a variable whose values Prometheus knows; all of them at first. ``others``: All takes whatever there is,
    also what is no value of the variable."""
    made = (
        boards.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )
    return made.all_value(".*") if others else made


def _steps(*steps: tuple[str, float | None]) -> boards.ThresholdsConfig:
    made = [model.Threshold(color=color, value=value) for color, value in steps]
    return boards.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def _target(at: int, query: Query) -> queries.Dataquery:
    target = queries.Dataquery().expr(query.expression).range().ref_id("ABCDEFGH"[at]).datasource(DATASOURCE)
    return target.legend_format(query.legend) if query.legend else target
