"""What a stage showed."""

from dataclasses import dataclass, field

from chaos.compare import Comparison

__all__ = ["Outcome"]


@dataclass(slots=True)
class Outcome:
    """What one stage showed.

    Attributes:
        repetitions: of the fault that were carried out.
        compared: both sides, record by record, by plain consumers at both isolation levels.
        halted: reasons of the halts that were intended.
        recovered_s: for each repetition, from the fault's end until copying had caught up with it.
        problems: everything that is not as it should be, in words; none: the scenario held.
        figures: what was measured, in words, for each repetition.
        notes: other things worth telling (resyncs by cause, say).
        audited: topics for the audit, with the offsets mode of the flow.
    """

    repetitions: int = 0
    compared: Comparison = field(default_factory=Comparison)
    halted: list[str] = field(default_factory=list)
    recovered_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    audited: list[str] = field(default_factory=list)
