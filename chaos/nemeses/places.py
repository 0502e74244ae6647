"""The places that nemeses strike, by their names in schedules."""

from typing import TYPE_CHECKING

from chaos.nemeses.schedule import Strike
from chaos.play.mirrors import MirrorProcess
from chaos.play.sides import Side
from lab.evidence import Record

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["GROUP", "MIRRORS", "SIDES", "TOPICS", "mirror_of", "record_of", "side_of"]

SIDES = ("the source", "the destination")
"""The brokers of that side."""
MIRRORS = ("mirror 1", "mirror 2")
"""The two mirrors that run all the time, in one group."""
GROUP = ("the group",)
"""The group of these two, which a third mirror joins."""

TOPICS = ("widened", "trimmed", "compacted", "remade", "overtaken", "retained")
"""Topics of the stage that have one nemesis each, by the ends of their names."""


def side_of(stage: "Stage", strike: Strike) -> Side:
    """Returns the cluster that is struck."""
    return dict(zip(SIDES, stage.pair.sides, strict=True))[strike.place]


def mirror_of(stage: "Stage", strike: Strike) -> MirrorProcess:
    """Returns the mirror that is struck."""
    return stage.mirrors[MIRRORS.index(strike.place)]


def record_of(stage: "Stage", strike: Strike) -> Record:
    """Returns the record for evidence of a strike at its place."""
    if strike.place in SIDES:
        return side_of(stage, strike).record
    return mirror_of(stage, strike).record if strike.place in MIRRORS else stage.record
