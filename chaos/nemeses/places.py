"""What nemeses strike, by the words that schedules have for it."""

from typing import TYPE_CHECKING

from chaos.evidence import Record
from chaos.mirrors import MirrorProcess
from chaos.nemeses.schedule import Strike
from chaos.sides import Side

if TYPE_CHECKING:
    from chaos.stage import Stage

__all__ = ["GROUP", "MIRRORS", "SIDES", "TOPICS", "mirror_of", "record_of", "side_of"]

SIDES = ("the source", "the destination")
"""Brokers of that side."""
MIRRORS = ("mirror 1", "mirror 2")
"""The two that run all the time, in one group."""
GROUP = ("the group",)
"""Of these two, which a third one joins."""

TOPICS = ("widened", "trimmed", "compacted", "remade", "overtaken", "retained")
"""Topics of the stage that have one nemesis each, by the part of their name that they end with."""


def side_of(stage: "Stage", strike: Strike) -> Side:
    """The cluster that is struck."""
    return dict(zip(SIDES, stage.pair.sides, strict=True))[strike.place]


def mirror_of(stage: "Stage", strike: Strike) -> MirrorProcess:
    """The mirror that is struck."""
    return stage.mirrors[MIRRORS.index(strike.place)]


def record_of(stage: "Stage", strike: Strike) -> Record:
    """Where the evidence of what strikes there is written down."""
    if strike.place in SIDES:
        return side_of(stage, strike).record
    return mirror_of(stage, strike).record if strike.place in MIRRORS else stage.record
