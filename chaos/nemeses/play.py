"""Plays a schedule of nemeses on a stage. All nemeses are begun and ended by one thread, in the order of the
schedule."""

import datetime
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.nemeses.places import record_of
from chaos.nemeses.schedule import NEMESES, Strike
from chaos.play.trials import SETTLE_S
from lab.evidence import STRUCK, Evidence, Record

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["moments", "play"]


def moments(schedule: Sequence[Strike]) -> list[tuple[float, int, bool]]:
    """Returns the events of a schedule in order of time, each as (seconds since the schedule began, index of the
    strike, True if the strike begins or False if it ends)."""
    begins = [(one.begins_s, at, True) for at, one in enumerate(schedule)]
    ends = [(one.ends_s, at, False) for at, one in enumerate(schedule)]
    return sorted([*begins, *ends], key=lambda moment: (moment[0], moment[2], moment[1]))


@dataclass(slots=True)
class _Begun:
    """A nemesis that is under way."""

    act: Iterator[None]
    record: Record
    at: float

    def struck(self, what: Evidence) -> bool:
        """Returns True if the evidence was seen often enough since the nemesis began."""
        return self.record.since(self.at)[what.name] >= what.least


def play(stage: "Stage", schedule: Sequence[Strike]) -> int:
    """Plays a schedule to its end, in its order and with at least its pauses. If a step itself takes long (for example
    a broker's start), the steps after it are delayed. No fault becomes shorter by that.

    Returns:
        The number of nemeses that have struck. Each is noted as evidence; the others are listed in a figure.

    Raises:
        ChaosError: as ``Stage.look``, or a nemesis could not be carried out.
    """
    begun: dict[int, _Begun] = {}
    missed: list[str] = []
    together, before_s = 0, 0.0
    with ExitStack() as acts:
        for at_s, number, begins in moments(schedule):
            stage.pause(at_s - before_s)
            before_s = at_s
            stage.look()
            strike = schedule[number]
            _write_down(stage, strike, "begins" if begins else "ends")
            what = NEMESES[strike.nemesis].struck
            if begins:
                one = _Begun(NEMESES[strike.nemesis].act(stage, strike), record_of(stage, strike), time.monotonic())
                acts.callback(_close, one.act)
                begun[number] = one
                together = max(together, len(begun))
                next(one.act)
                continue
            one = begun.pop(number)
            next(one.act, None)
            if stage.soon(lambda: one.struck(what), SETTLE_S):  # noqa: B023
                stage.seen(STRUCK)
            else:
                missed.append(str(strike))
                _write_down(stage, strike, "was not seen to strike")
    stage.figure(f"{len(schedule) - len(missed)} of {len(schedule)} struck, {together} at once")
    if missed:
        stage.figure(f"did not strike: {', '.join(missed)}")
    return len(schedule) - len(missed)


def _write_down(stage: "Stage", strike: Strike, what: str) -> None:
    """Writes a line into nemeses.log beside the mirrors' logs, with a time that can be compared with theirs."""
    now = datetime.datetime.now(datetime.UTC).isoformat()
    with (stage.processes.folder / "nemeses.log").open("a") as log:
        log.write(f"{now} {strike.nemesis} at {strike.place} {what}\n")


def _close(act: Iterator[None]) -> None:
    """Ends a nemesis that is still under way because another one has failed, so that it releases its resources. Errors
    are ignored."""
    with suppress(Exception):
        act.close()  # type: ignore[attr-defined]
