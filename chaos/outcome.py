"""What a stage showed."""

from dataclasses import dataclass, field

from chaos.compare import Comparison

__all__ = ["Outcome"]


@dataclass(slots=True)
class Outcome:
    """What one stage showed.

    Attributes:
        repetitions: of the fault that struck.
        tries: carried out, whether they struck or not.
        missed: what was not seen of the last one, if that did not strike.
        compared: both sides, record by record, by plain consumers at both isolation levels.
        prefixes: records of the source that were compared with what was copied of partitions that then halted.
        halted: reasons of the halts that were intended.
        recovered_s: for each repetition, from the fault's end until copying had caught up with it.
        problems: everything that is not as it should be, in words; none: the scenario held.
        figures: what was measured, in words, for each repetition.
        notes: other things worth telling (resyncs by cause, say).
        audited: topics for the audit.
        topics: how many there are.
    """

    repetitions: int = 0
    tries: int = 0
    missed: list[str] = field(default_factory=list)
    compared: Comparison = field(default_factory=Comparison)
    prefixes: int = 0
    halted: list[str] = field(default_factory=list)
    recovered_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    audited: list[str] = field(default_factory=list)
    topics: int = 0
