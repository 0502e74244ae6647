"""The states of a partition, and the moves between them."""

from enum import Enum


class Phase(Enum):
    """The names are stable: metrics, logs and the status page carry them."""

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
"""All transitions. A partition leaves DOUBT only when nothing is under way any more, and HALTED only when an operator
resumes it, or when a reason that heals by itself is gone."""
