"""The places that nemeses strike, with their names in schedules. No place is struck by two nemeses at the same time."""

from typing import TYPE_CHECKING

from chaos.nemeses.schedule import Strike
from chaos.play.mirrors import MirrorProcess
from chaos.play.sides import Side
from lab.evidence import Record

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["GROUP", "MIRRORS", "SIDES", "TOPICS", "mirror_of", "record_of", "side_of"]

SIDES = ("the source", "the destination")
"""All brokers of a side."""
MIRRORS = ("mirror 1", "mirror 2")
"""The two mirrors that run from the beginning to the end, in the same group."""
GROUP = ("the group",)
"""The group of these two mirrors, which a third mirror joins."""

TOPICS = ("widened", "trimmed", "compacted", "remade", "overtaken", "retained")
"""Topics of the stage for which there is one nemesis each. Their names have the stage's prefix in front."""


def side_of(stage: "Stage", strike: Strike) -> Side:
    """Returns the cluster that is struck."""
    return dict(zip(SIDES, stage.pair.sides, strict=True))[strike.place]


def mirror_of(stage: "Stage", strike: Strike) -> MirrorProcess:
    """Returns the mirror that is struck."""
    return stage.mirrors[MIRRORS.index(strike.place)]


def record_of(stage: "Stage", strike: Strike) -> Record:
    """Returns the record that gets the evidence of a strike: that of the side, of the mirror, or of the stage."""
    if strike.place in SIDES:
        return side_of(stage, strike).record
    return mirror_of(stage, strike).record if strike.place in MIRRORS else stage.record
