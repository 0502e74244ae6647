"""The results of a stage."""

from dataclasses import dataclass, field

from chaos.judging.compare import Comparison

__all__ = ["Outcome"]


@dataclass(slots=True)
class Outcome:
    """The results of one stage.

    Attributes:
        repetitions: number of repetitions that struck.
        tries: number carried out, whether they struck or not.
        missed: evidence that the last one lacked, if it did not strike.
        lacked: evidence that each try lacked that did not strike, in words.
        compared: both sides, record by record, by plain consumers at both isolation levels. What is found in the
            copies of partitions that halted is counted in it, too.
        was_compared: False until both sides were compared: it failed before, and nothing of it was.
        prefixes: number of source records compared with the copies of partitions that halted.
        halted: reasons of the halts that were intended.
        recovered_s: for each repetition, from the fault's end until copying had caught up with it.
        problems: everything that is wrong, in words; none: the scenario held.
        figures: measurements, in words, for each repetition.
        notes: counts of other things (for example resyncs by cause).
        audited: topics for the audit.
        topics: number of topics.
    """

    repetitions: int = 0
    tries: int = 0
    missed: list[str] = field(default_factory=list)
    lacked: list[str] = field(default_factory=list)
    compared: Comparison = field(default_factory=Comparison)
    was_compared: bool = False
    prefixes: int = 0
    halted: list[str] = field(default_factory=list)
    recovered_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    audited: list[str] = field(default_factory=list)
    topics: int = 0
