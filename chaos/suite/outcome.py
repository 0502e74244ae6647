"""The results of a stage."""

from dataclasses import dataclass, field

from chaos.judging.compare import Comparison

__all__ = ["Outcome"]


@dataclass(slots=True)
class Outcome:
    """The results of one stage.

    Attributes:
        repetitions: number of repetitions that have struck.
        tries: number of tries, whether they have struck or not.
        missed: evidence that the last try lacked; empty: it has struck.
        lacked: for each try that did not strike, the evidence that it lacked, in words.
        compared: result of the comparison of both sides, record by record, by plain consumers at both isolation levels.
            It includes what was found wrong in the copies of halted partitions.
        was_compared: True once both sides were compared; False: the stage has failed before.
        prefixes: number of source records that were compared with the copies of halted partitions.
        halted: reasons of the expected halts.
        recovered_s: for each recovery, the time in seconds from the end of the fault until everything was copied.
        problems: everything that is wrong, in words; empty: the scenario held.
        figures: measurements, in words.
        notes: other thing that was counted (for example an event of the mirror) -> how often.
        audited: names of the topics for the audit.
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
