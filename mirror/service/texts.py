"""Texts for people: rows in columns, durations, enumerations."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the rows as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def many(count: int, what: str) -> str:
    """Returns a number with its noun. ``what``: the noun in the singular."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def some(texts: Sequence[str], most: int = 10, *, between: str = ", ") -> str:
    """Returns at most ``most`` of the texts, joined, and the number of those that are left out."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def duration_text(seconds: float) -> str:
    """Returns a duration as text, in its two largest units."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(at for at, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)
