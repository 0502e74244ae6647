"""The partitions of a stage that have to halt or may halt, and the check that the others go on meanwhile."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from chaos.errors import ChaosError
from chaos.judging.halting import Halting
from chaos.play.mirrors import MirrorProcess
from chaos.play.sides import Name
from chaos.waiting import NOW_AND_THEN_S, until

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["Halts"]


class Halts:
    """The expected and permitted halts of a stage.

    Attributes:
        expected: partition that has to halt -> its expected halt.
        permitted: partition that may halt -> reasons with which it may. All other partitions have to go on.
        passing: partition -> reasons with which it may halt for a while. It has to go on by itself.
        looked_on: True once it was measured that the other partitions go on.
    """

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage
        self.expected: dict[Name, Halting] = {}
        self.permitted: dict[Name, set[str]] = {}
        self.passing: dict[Name, set[str]] = {}
        self.looked_on = False
        self._alone = False

    def announce(
        self, topic: str, reason: str, *, ends: tuple[int, int], right: Mapping[int, bytes] | None = None,
        strangers: int = 0, under_way: int = 0,
    ) -> None:  # fmt: skip
        """Permits partition 0 of a topic to halt with a reason from now on, and requires that in the end.

        It may also halt with a reason that was announced before. Arguments: see ``Halting``.
        """
        self.expected[topic, 0] = Halting(
            reason=reason, ends=ends, right=right, strangers=strangers, under_way=under_way
        )
        self.permitted.setdefault((topic, 0), set()).add(reason)

    def tolerate(self, name: Name, *reasons: str) -> None:
        """Permits a partition to halt with one of these reasons from now on, or to go on. The act checks its copy."""
        self.permitted.setdefault(name, set()).update(reasons)

    def no_more(self, name: Name) -> None:
        """Forbids halts of a tolerated partition from now on: the cause of its halt is gone, and it goes on."""
        self._stage.look()  # judges the halts until now, which were permitted
        del self.permitted[name]

    def pass_over(self, name: Name, *reasons: str) -> None:
        """Permits a partition to halt with one of these reasons from now on. Such a halt has to heal by itself."""
        self.passing.setdefault(name, set()).update(reasons)
        self.may_be_alone()

    def may_be_alone(self) -> None:
        """Permits mirrors from now on to report that all their partitions have halted (``all_halted``): other mirrors
        may have the rest."""
        self._alone = True
        for mirror in self._stage.mirrors:
            self.begun(mirror)

    def begun(self, mirror: MirrorProcess) -> None:
        """To be called when another mirror was started."""
        if self._alone:
            mirror.conduct.allow("all_halted")

    def expect(self, topic: str) -> None:
        """Waits until partition 0 of a topic has halted as announced, and measures that the others go on.

        The time until then does not count as a recovery.
        """
        stage, reason = self._stage, self.expected[topic, 0].reason

        def halted() -> bool:
            stage.look()
            said = [mirror.halts.get((topic, 0)) for mirror in stage.mirrors]
            return any(halt is not None and halt.reason == reason for halt in said)

        until(halted, lambda: f"{topic}-0 to halt with {reason}; {stage.told()}")
        self.others_go_on()

    def others_go_on(self) -> None:
        """Measures that all partitions that are written to and must not halt go on, while others have halted.

        Raises:
            ChaosError: one of them does not go on, nothing has halted, or there are no such partitions.
        """
        stage = self._stage
        names = [(plan.name, index) for plan in stage.topics for index in range(plan.partitions)
                 if plan.writing != "nobody" and (plan.name, index) not in self.permitted]  # fmt: skip
        if not names:
            raise ChaosError("no partition is written to beside the one that halts", "give the scenario a stream")
        before = until(lambda: stage.destination.ends(names), "the others' ends")
        halted, began_at = self._now(), time.monotonic()
        now: dict[Name, int] = {}

        def gone_on() -> bool:
            stage.look()
            now.update(stage.destination.ends(names))
            return bool(now) and all(now[name] > before[name] for name in names)

        until(gone_on, lambda: f"the other partitions to go on; {stage.told()}", every_s=NOW_AND_THEN_S)
        copied, took_s = sum(now[name] - before[name] for name in names), time.monotonic() - began_at
        still = halted & self._now()
        if not still:
            raise ChaosError(f"nothing was halted while the others went on; {stage.told()}")
        self.looked_on = True
        stage.figure(
            f"{len(still)} halted, {len(names)} others went on by {copied} offsets in {took_s:.1f} s meanwhile"
        )
        stage.caught_up()

    def _now(self) -> set[Name]:
        return {name for mirror in self._stage.mirrors for name in mirror.halts}

    def check(self, mirror: MirrorProcess) -> None:
        """Raises ``ChaosError`` if a partition of the mirror has halted that must not, or with another reason. Halts
        that are over by now count as well."""
        for halt in (*mirror.take_halts(), *mirror.halts.values()):
            name = halt.topic, halt.partition
            reasons = self.permitted.get(name) or self.passing.get(name)
            if reasons is None:
                raise ChaosError(f"halted: {halt}")
            if halt.reason not in reasons:
                raise ChaosError(f"{halt}, and {' or '.join(sorted(reasons))} was to be expected")
