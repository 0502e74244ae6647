"""The phases of a partition, and the moves between them."""

from enum import Enum


class Phase(Enum):
    """The values are stable names: metrics, logs and the status page show them."""

    LOCATING = "locating"
    ACTIVE = "active"
    DOUBT = "doubt"
    HALTED = "halted"
    STOPPED = "stopped"


MOVES: dict[tuple[Phase, str], Phase] = {
    (Phase.LOCATING, "located"): Phase.ACTIVE,
    (Phase.LOCATING, "halted"): Phase.HALTED,
    (Phase.LOCATING, "stopped"): Phase.STOPPED,
    (Phase.ACTIVE, "doubted"): Phase.DOUBT,
    (Phase.ACTIVE, "halted"): Phase.HALTED,
    (Phase.ACTIVE, "stopped"): Phase.STOPPED,
    (Phase.DOUBT, "emptied"): Phase.LOCATING,
    (Phase.DOUBT, "halted"): Phase.HALTED,
    (Phase.DOUBT, "stopped"): Phase.STOPPED,
    (Phase.HALTED, "resumed"): Phase.LOCATING,
    (Phase.HALTED, "stopped"): Phase.STOPPED,
}
"""(phase, event) -> next phase: all moves that exist. A partition leaves DOUBT only when nothing of it is in flight any
more. It leaves HALTED only when an operator resumes it, or when a reason that heals by itself is gone."""
