"""Writes the dashboards: ``python -m deploy.grafana.generate``, or ``make dashboards``."""

import json
from pathlib import Path
from types import ModuleType

from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana import overview, shallow, topics, workers
from deploy.grafana.panels import DATASOURCE, FLOW, JOB, selection

FOLDER = Path(__file__).parent / "dashboards"
BOARDS = (overview, topics, workers, shallow)
VARIABLES = {
    # up and process_* of other jobs are not ours.
    "job": selection("job", "Job", "label_values(mirror_build_info, job)", others=False),
    "source": selection("source", "Source", f"label_values(mirror_flow_partitions{{{JOB}}}, source)"),
    "target": selection("target", "Destination", f"label_values(mirror_flow_partitions{{{JOB}}}, target)"),
    "topic": selection("topic", "Topic", f"label_values(mirror_source_end_offset{{{FLOW}}}, topic)"),
    "instance": selection("instance", "Host", f"label_values(mirror_build_info{{{JOB}}}, instance)"),
}
MARKS = {
    # What explains a step in the graphs.
    "Worker restarts": ("red", f"increase(mirror_worker_restarts_total{{{JOB}}}[$__rate_interval]) > 0"),
    "Reloads": ("blue", f"changes(mirror_config_last_reload_success_timestamp_seconds{{{JOB}}}[$__rate_interval]) > 0"),
}
"""Annotations: name -> colour and expression."""


def uid(board: ModuleType) -> str:
    """Returns the dashboard's identity, which never changes: links and replaced imports go by it."""
    return f"mirror-{board.__name__.rpartition('.')[2]}"


def build(board: ModuleType) -> model.Dashboard:
    """Returns the dashboard that a module describes by TITLE, TEXT, VARIABLES and PANELS."""
    made = boards.Dashboard(f"mirror: {board.TITLE}").uid(uid(board)).description(board.TEXT).tags(["mirror", "kafka"])
    made = made.time("now-3h", "now").refresh("30s").timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR)
    made = made.with_variable(boards.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    for name in ("job", *board.VARIABLES):
        made = made.with_variable(VARIABLES[name])
    others = boards.DashboardLink("mirror").type(model.DashboardLinkType.DASHBOARDS).tags(["mirror"])
    made = made.link(others.as_dropdown(True).include_vars(True).keep_time(True))
    for name, (color, expression) in MARKS.items():
        mark = (
            boards.AnnotationQuery().name(name).datasource(DATASOURCE).enable(True).icon_color(color).expr(expression)
        )
        made = made.annotation(mark)
    for at, panel in enumerate(board.PANELS):
        made = made.with_row(panel.id(at + 1)) if isinstance(panel, boards.Row) else made.with_panel(panel.id(at + 1))
    return made.build()


def texts() -> dict[str, str]:
    """Returns file name -> the JSON of each dashboard."""
    return {
        f"{uid(board)}.json": json.dumps(build(board), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False)
        + "\n"
        for board in BOARDS
    }


def main() -> None:
    """Replaces what is in the folder."""
    FOLDER.mkdir(exist_ok=True)
    made = texts()
    for path in FOLDER.glob("*.json"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
