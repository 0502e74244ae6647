"""``docs/HALTS.md`` from the one list of reasons (``mirror.reasons``).

``python -m tests.project.halts_document`` writes it.
"""

from itertools import groupby
from operator import attrgetter
from pathlib import Path

from mirror.foretold import FORETOLD, UNFORESEEN, Line
from mirror.reasons import HaltReason

FILE = Path(__file__).parent.parent.parent / "docs" / "HALTS.md"
_HEAD = """\
# Halts

A partition that cannot continue exactly stops, with one of the reasons below; all other partitions continue. The log
line `halted`, `mirror status`, `mirror_halts_total{reason}` and the internal topic name the reason, the offsets and
values that led to it, and the remedy, with the commands as they have to be typed. Nothing behind a halt is copied
until it ends.

Who ends a halt:

* *operator*: an operator, with `mirror resume TOPIC PARTITION` (without PARTITION all partitions of the
  topic; with `--all` all halted partitions). Such a halt is written down, and stays for every worker that takes the
  partition over.
* *topics*: the mirror, once the topics are as they have to be. It checks whenever it refreshes topics.
* *terms*: the mirror, once the destination topic's settings allow it. It checks whenever it refreshes topics.
* *rights*: the mirror, once the right is there. It checks whenever it refreshes topics, and at its next start or
  takeover.
* *restart*: the mirror, at its next start or takeover, once settings or versions have changed.

*Before the start* names the line of `mirror plan` that tells of such partitions before the first byte is copied, or why
none can.

Made by `python -m tests.project.halts_document` from `mirror/reasons.py` and `mirror/foretold.py`; do not edit.
"""


def document() -> str:
    """Markdown: a table of all reasons, then each with its cases and remedies, then the lines of ``mirror plan``."""
    by_slug = {slug: list(cases) for slug, cases in groupby(sorted(HaltReason, key=_slug), key=_slug)}
    rows = [f"| [`{slug}`](#{slug}) | {cases[0].meaning} | {_ends(cases)} |" for slug, cases in by_slug.items()]
    lines = [_HEAD, "| reason | what was found | who ends it |", "|---|---|---|", *rows]
    for slug, cases in by_slug.items():
        lines += ["", f"## {slug}"]
        for case in cases:
            lines += ["", f"{case.meaning}", "", f"*Remedy:* {_sentence(case.remedy)}", "", _before(case)]
    lines += ["", "## The lines of mirror plan", "", "| line | what it finds out | reasons |", "|---|---|---|"]
    for line in Line:
        told = sorted({case.slug for case, of in FORETOLD.items() if of is line})
        lines.append(f"| `{line}` | {line.asks} | {', '.join(f'[`{slug}`](#{slug})' for slug in told)} |")
    return "\n".join(lines) + "\n"


_slug = attrgetter("slug")


def _before(case: HaltReason) -> str:
    line = FORETOLD.get(case)
    return f"*Before the start:* {f'`{line}`' if line is not None else _sentence(UNFORESEEN[case])}"


def _ends(cases: list[HaltReason]) -> str:
    heals = cases[0].heals
    return "operator" if heals is None else heals.name.lower()


def _sentence(remedy: str) -> str:
    placed = remedy.replace("{id}", "ID")
    return placed[0].upper() + placed[1:] + "."


if __name__ == "__main__":
    FILE.write_text(document())
