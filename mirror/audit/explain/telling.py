"""The output of ``mirror audit explain``: as a table for people, and as data."""

from collections.abc import Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mirror.audit.explain.comparing import OWN, SAME, Explained, Row
from mirror.audit.explain.looking import Looked

MOST_RECORDS = 100
UNWRAPPED = 10_000
_STYLES = {SAME: "green", OWN: "dim"}


def data(source: Looked, destination: Looked, found: Explained) -> dict[str, Any]:
    """Returns the comparison as data for JSON."""
    return {
        "source": _side(source),
        "destination": _side(destination),
        "differs": found.differs,
        "fields": [_row(row) for row in found.fields],
        "records": [_row(row) for row in found.records],
        "same_records": found.same,
        "notes": found.notes,
    }


def _side(side: Looked) -> dict[str, Any]:
    return {
        "alias": side.alias, "cluster_id": side.cluster_id, "topic": side.topic, "partition": side.partition,
        "offset": side.offset, "log_start": side.start, "log_end": side.end,
    }  # fmt: skip


def _row(row: Row) -> dict[str, str]:
    return {**row._asdict(), "remark": row.remark or "the same"}


def table(source: Looked, destination: Looked, found: Explained, width: int) -> str:
    """Returns the comparison as text. ``width``: of the terminal, in columns; 0: nothing is wrapped, and all records
    are shown, not only ``MOST_RECORDS``."""
    out = StringIO()
    console = Console(file=out, width=width or UNWRAPPED, force_terminal=False)
    for side in (source, destination):
        console.print(
            f"{side.alias}: {side.topic} partition {side.partition}, offset {side.offset} "
            f"(log {side.start} to {side.end}, cluster {side.cluster_id})",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    console.print(_rows("batch", source, destination, found.fields))
    shown = found.records if not width else found.records[:MOST_RECORDS]
    if shown:
        console.print(_rows("records", source, destination, shown))
    lines = [f"{len(found.records) - len(shown):,} more records; --format wide shows all"] * (shown != found.records)
    if found.same:
        lines.append(f"{found.same:,} records are the same on both sides")
    lines += [f"note: {note}" for note in found.notes]
    if source.batch is None and destination.batch is None:
        lines.append("neither side has a batch there")
    else:
        lines.append("they differ" if found.differs else f"they are the same, but for what is {OWN}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return out.getvalue()


def _rows(title: str, source: Looked, destination: Looked, rows: Sequence[Row]) -> Table:
    made = Table(title=title, title_justify="left")
    made.add_column("what")
    made.add_column(escape(source.alias), overflow="fold")
    made.add_column(escape(destination.alias), overflow="fold")
    made.add_column("")
    for row in rows:
        made.add_row(*map(escape, row), style=_STYLES.get(row.remark, "red"))
    return made
