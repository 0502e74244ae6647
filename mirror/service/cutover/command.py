"""``mirror cutover``: the steps, in order. Each step is noted when it is done, with the source's log ends for which it
was done. So the command may be interrupted anywhere and run again: it goes on with the next step, or begins again if
the source's ends have changed.

Nothing that it does has to be undone. It only reads, until it commits the groups' offsets, as ``mirror sync`` does.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirror.service.cutover.certificate import FILE, MOVED, SKIPPED, Audit, certificate, group_data
from mirror.service.cutover.files import as_json, write_whole
from mirror.service.cutover.obstacles import Obstacle
from mirror.service.cutover.state import State
from mirror.service.cutover.still import unstable, written
from mirror.service.cutover.world import Found, World
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK
from mirror.service.offsets.ends import PartitionEnds
from mirror.service.sync.plan import GroupPlan, GroupsPlan, GroupState
from mirror.service.texts import duration_text, many, some

POLL_S = 0.5
"""Pause between two looks at the clusters while the copy catches up."""
TOLD_EVERY_S = 5.0
AUDIT = "audit"
"""Name of the folder with the audit's result files."""
UNPROVEN, DIFFERENT = 3, 2
"""Exit codes of the audit (docs/AUDIT.md)."""
STUCK = 50
"""Maximum number of groups that a message names as those that cannot move."""
_COPIED = "the copy has reached the source's end"


class Refused(Exception):
    """The cutover cannot go on; the message says why and what to do. ``code``: the exit code."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a cutover is done.

    Attributes:
        window_s: how long the source's ends have to stand still.
        timeout_s: the longest wait until everything is copied.
        skip_audit: True to leave the audit out; the certificate says so.
        accept_unproven: True to go on if the audit found no difference, but could not prove everything.
        groups: names of the only groups to move, each of which has to exist; empty: all that the configuration selects.
        version: the mirror's version, for the certificate.
    """

    window_s: float = 5.0
    timeout_s: float = 600.0
    skip_audit: bool = False
    accept_unproven: bool = False
    groups: tuple[str, ...] = ()
    version: str = ""


class Cutover:
    """One run of the command."""

    def __init__(
        self,
        world: World,
        options: Options,
        folder: Path,
        *,
        tell: Callable[[str], object],
        rest: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            world: the clusters, the mirror that runs here, and the audit.
            options: how the cutover is done.
            folder: existing folder for the state, the certificate and the audit's files.
            tell: gets each line of progress.
            rest: waits for some seconds.
            clock: returns monotonic seconds.
        """
        self._world = world
        self._options = options
        self._folder = folder
        self._tell = tell
        self._rest = rest
        self._clock = clock

    async def run(self, next_steps: Callable[[dict[str, Any]], Sequence[str]]) -> int:
        """Does the steps that are not done yet, then tells the operator's next steps.

        Args:
            next_steps: returns the operator's next steps for a certificate, as lines of text.

        Returns:
            The exit code: ``EXIT_OK``.

        Raises:
            Refused: the cutover cannot go on.
            StateUnreadable: the folder has a file that is not the state of this cutover.
            NetworkError: a cluster does not answer.
            OSError: a file cannot be written.
        """
        state = State.read(self._folder, self._world.subject)
        found = await self._look()
        self._go_on(state, found)
        # Behind the certificate nothing is checked any more: producers may write to the copies, the flow may be paused.
        if "certified" not in state.done:
            self._check(found)
            self._uncovered(found)
            if "audited" not in state.done:  # the audit may take hours: refuse before it what can be known by now
                seen = await self._world.groups(apply=False)
                self._check_known(seen)
                # Waiting does not help these groups: each of them needs a right that is missing.
                self._check_movable(plan for plan in seen.groups if plan.state is GroupState.FAILED and plan.remedy)
            found = await self._stopped(state, found)
            found = await self._drained(state, found)
            self._audited(state)
            groups = await self._carried(state)
            await self._certify(state, groups)
        else:
            self._tell_audited(state)
            self._written_before(state)
        data = state.done["certified"]["certificate"]
        self._tell("")
        for line in next_steps(data):
            self._tell(line)
        return EXIT_OK

    async def foresee(self) -> int:
        """Tells what ``run`` would do, and changes nothing.

        Returns:
            ``EXIT_OK`` if ``run`` would not refuse as things are now, otherwise the highest exit code of the refusals.

        Raises:
            Refused: the source does not show all topics of the flow, or the flow has none.
            StateUnreadable, NetworkError: see ``run``.
        """
        state = State.read(self._folder, self._world.subject)
        found = await self._look()
        refusals: list[Refused] = []

        def would(step: str, check: Callable[[], None], said: str) -> None:
            try:
                check()
            except Refused as error:
                refusals.append(error)
                said = f"would refuse: {error}"
            self._tell(f"{step}: {said}")

        since = state.changed(found.rows) if state.done else []
        if "certified" in state.done and not since:
            written = self._folder / FILE
            self._tell(
                f"nothing is to be done: {written} was written before, for the same ends"
                if written.exists()
                else f"5 certificate: {written} is gone, and would be written again"
            )
            return EXIT_OK
        would("  partitions", lambda: self._check(found), f"{len(found.rows)} in {_topics(found.rows)}")
        self._uncovered(found)
        if since:
            self._tell(f"would begin again, since this has changed: {some(since)}")
        done = {} if since else state.done
        window = "stand still since the last run"
        if "stopped" not in done:
            later = await self._after_window(found)
            window = f"stand still for {duration_text(self._options.window_s)}"
            would("1 stopped", lambda: self._check_stopped(found, later), f"the source's ends {window}")
            found = later
        else:
            self._tell(f"1 stopped: the source's ends {window}")
        behind = [row for row in found.rows if row.is_behind]
        waits = f"would wait for {sum(row.lag or 0 for row in behind):,} records" if behind else _COPIED
        would("2 drained", lambda: self._check_running(found), waits)
        audit = "would be skipped" if self._options.skip_audit else "would compare both clusters"
        self._tell(f"3 audited: {'done before' if self._is_audited(done) else audit}")
        seen = await self._world.groups(apply=False)
        plans = seen.groups
        members = await self._world.members([plan.group for plan in plans])
        due = sum(len(plan.due) for plan in plans)
        would(
            "4 groups",
            lambda: self._check_groups(seen, members, behind_too=not behind),
            f"would commit {many(due, 'offset')} of {many(len(plans), 'group')}",
        )
        self._tell_notes(seen)
        self._tell(f"5 certificate: would be written to {self._folder / FILE}")
        self._tell("nothing was changed")
        return max((refusal.code for refusal in refusals), default=EXIT_OK)

    # -- looking -------------------------------------------------------------------------------------------------------

    async def _look(self) -> Found:
        found = await self._world.look()
        if found.missing:
            lines = some([f"{each.topic}: {each.why}" for each in found.missing], 20, between="\n  ")
            raise Refused(f"not all topics that the flow is to move are seen at the source:\n  {lines}")
        if not found.rows:
            raise Refused("the flow mirrors no topic of the source, so there is nothing to cut over; check topics")
        return found

    def _uncovered(self, found: Found) -> None:
        if found.not_covered:
            self._tell(f"not of this flow, so they stay at the source: {some(found.not_covered)}")

    def _check(self, found: Found) -> None:
        """Refuses if something is wrong that does not get better by waiting."""
        self._check_obstacles(found.obstacles)  # first: a halt is the most telling cause
        unknown = [f"{row.name}: {row.why}" for row in found.rows if row.why]
        if unknown:
            raise Refused(f"not known of every partition how far it is copied: {some(unknown)}")
        more = [
            f"{row.name} ends at {row.source_end}, its copy at {row.copied_to}"
            for row in found.rows
            if (row.lag or 0) < 0
        ]
        if more:
            raise Refused(
                f"the destination has more than the source: {some(more)}. Somebody writes to the copies already, or "
                "the source has lost its end; `mirror status` says more"
            )

    @staticmethod
    def _check_obstacles(obstacles: Sequence[Obstacle]) -> None:
        if not obstacles:
            return
        lines = "\n  ".join(each.told() for each in obstacles[:20])
        more = f"\n  and {len(obstacles) - 20} more; `mirror status` shows them" if len(obstacles) > 20 else ""
        code = EXIT_FAILED if all(each.is_paused for each in obstacles) else EXIT_HALTED
        raise Refused(f"not everything is being copied:\n  {lines}{more}", code)

    def _go_on(self, state: State, found: Found) -> None:
        """Keeps the steps of an earlier run if the source's ends and the topics are still the same."""
        if not state.done:
            return
        since = state.changed(found.rows)
        if since:
            self._tell(f"changed since the last run, so it all begins again: {some(since)}")
            state.begin_again()
        else:
            self._tell(f"going on; done before for the same ends: {', '.join(state.done)}")

    # -- step 1 --------------------------------------------------------------------------------------------------------

    async def _stopped(self, state: State, found: Found) -> Found:
        if "stopped" in state.done:
            return found
        seconds = duration_text(self._options.window_s)
        self._tell(f"1 stopped: looking whether the source's ends stand still for {seconds}")
        later = await self._after_window(found)
        self._check(later)
        self._check_stopped(found, later)
        state.begin_again(later.rows)
        self._note(state, "stopped", stood_still_s=self._options.window_s)
        self._tell(f"1 stopped: the source's ends stood still for {seconds}")
        return later

    async def _after_window(self, found: Found) -> Found:
        self._since = self._clock()
        await self._rest(self._options.window_s)
        later = await self._look()
        self._seconds = self._clock() - self._since
        return later

    def _check_stopped(self, found: Found, later: Found) -> None:
        grown = written(found.rows, later.rows, self._seconds)
        if grown:
            raise Refused(
                f"the source is still written to: {some([each.told() for each in grown])}. Stop the producers, then "
                "run this again"
            )
        waiting = unstable(later.rows)
        if waiting:
            told = [f"{row.name} (stable up to {row.source_stable}, ends at {row.source_end})" for row in waiting]
            raise Refused(
                f"a transaction is open, or records are not replicated yet, in {some(told)}. Have producers commit or "
                "abort, or wait for transaction.timeout.ms; then run this again"
            )

    # -- step 2 --------------------------------------------------------------------------------------------------------

    async def _drained(self, state: State, found: Found) -> Found:
        if "drained" in state.done:
            return found
        until = self._clock() + self._options.timeout_s
        told_at = float("-inf")
        while behind := [row for row in found.rows if row.is_behind]:
            lag = sum(row.lag or 0 for row in behind)
            self._check_running(found)
            if self._clock() >= until:
                raise Refused(
                    f"not copied within {duration_text(self._options.timeout_s)}: {lag:,} records of "
                    f"{some([f'{row.name} ({row.lag})' for row in behind])}. `mirror status` says why; then run this "
                    "again, or with a longer --timeout"
                )
            if self._clock() - told_at >= TOLD_EVERY_S:
                self._tell(f"2 drained: {lag:,} records of {many(len(behind), 'partition')} to go")
                told_at = self._clock()
            await self._rest(POLL_S)
            found = await self._look()
            self._check(found)
            self._check_unmoved(state, found)
        self._note(state, "drained")
        self._tell(f"2 drained: {_COPIED}, {many(len(found.rows), 'partition')}")
        return found

    @staticmethod
    def _check_running(found: Found) -> None:
        behind = [row for row in found.rows if row.is_behind]
        if behind and found.running:
            lag = sum(row.lag or 0 for row in behind)
            raise Refused(
                f"{lag:,} records of {many(len(behind), 'partition')} are to be copied, and no mirror does that: "
                f"{found.running}"
            )

    def _check_unmoved(self, state: State, found: Found) -> None:
        """Refuses if the source's ends or the topics have changed since the producers were seen to have stopped."""
        since = state.changed(found.rows)
        if since:
            state.begin_again()
            state.write(self._folder)
            raise Refused(
                f"changed since the producers were seen to have stopped: {some(since)}. Stop them, then run this "
                "again: it begins with step 1"
            )

    def _check_copied(self, state: State, found: Found) -> None:
        """Refuses if the destination has lost copies since step 2: the audit may have taken long, and step 2 may have
        been done by a much earlier run."""
        behind = [f"{row.name} ({row.lag})" for row in found.rows if row.is_behind]
        if behind:
            state.begin_again()
            state.write(self._folder)
            raise Refused(
                f"the destination has lost records that were copied, of {some(behind)} (an unclean leader election): "
                "run this again, it begins with step 1 and waits until they are copied again"
            )

    # -- step 3 --------------------------------------------------------------------------------------------------------

    def _is_audited(self, done: Mapping[str, Any]) -> bool:
        """Returns True if the audit was done before, or if it was skipped before and is to be skipped now."""
        before = done.get("audited")
        return before is not None and (before["verdict"] != SKIPPED or self._options.skip_audit)

    def _audited(self, state: State) -> None:
        if self._is_audited(state.done):
            self._tell_audited(state)
            return
        if self._options.skip_audit:
            self._note(state, "audited", verdict=SKIPPED, code=-1)
            self._tell("3 audited: skipped")
            return
        self._tell("3 audited: comparing both clusters")
        audit = self._world.audit(self._folder / AUDIT)
        if audit.code == UNPROVEN and self._options.accept_unproven:
            self._tell(f"3 audited: {audit.verdict}; going on was accepted (--accept-unproven)")
        elif audit.code == UNPROVEN:
            raise Refused(
                f"the audit found no difference, but could not prove everything ({audit.verdict}); see above. "
                "--accept-unproven goes on all the same, and the certificate says so",
                UNPROVEN,
            )
        elif audit.code:
            told = "found differences" if audit.code == DIFFERENT else "could not finish"
            raise Refused(f"the audit {told}; see above", DIFFERENT if audit.code == DIFFERENT else EXIT_FAILED)
        self._note(state, "audited", verdict=audit.verdict, code=audit.code)
        self._tell(f"3 audited: {audit.verdict}")

    def _tell_audited(self, state: State) -> None:
        """Tells if the result files of an earlier audit are gone. That is no reason to audit again."""
        verdict, files = state.done["audited"]["verdict"], self._folder / AUDIT
        if verdict != SKIPPED and not files.exists():
            self._tell(
                f"3 audited: {verdict}, before; its files are gone from {files}: `mirror audit` makes them again"
            )

    # -- step 4 --------------------------------------------------------------------------------------------------------

    async def _carried(self, state: State) -> list[GroupPlan]:
        """Commits the groups' offsets, and returns the groups. Each run does this until there is a certificate, since
        repeating it does no harm."""
        for apply in (False, True):
            seen = await self._world.groups(apply=apply)
            plans = seen.groups
            self._check_groups(seen, await self._world.members([plan.group for plan in plans]))
        carried = sum(plan.carried for plan in plans)
        self._note(state, "groups", groups=[plan.group for plan in plans])
        self._tell_notes(seen)
        ahead = [plan.group for plan in plans if plan.state is GroupState.AHEAD]
        if ahead:
            self._tell(f"4 groups: left alone, since they have read further at the destination: {some(ahead)}")
        self._tell(f"4 groups: {many(carried, 'offset')} of {many(len(plans), 'group')} committed at the destination")
        return plans

    def _tell_notes(self, seen: GroupsPlan) -> None:
        for note in seen.notes:
            self._tell(f"4 groups: {note}")

    def _check_known(self, seen: GroupsPlan) -> None:
        """Refuses if a group may be missing from the list: it would not be moved, and the certificate would not have
        it."""
        if seen.failed:
            raise Refused(f"{seen.failed}, so groups may be left behind; {seen.remedy}, then run this again")
        known = {plan.group for plan in seen.groups}
        unknown = "it has no committed offsets of this flow's topics at the source"
        absent = [
            f"group {name}: {seen.absent.get(name, unknown)}" for name in self._options.groups if name not in known
        ]
        if absent:
            raise Refused(f"{some(absent, between='; ')}: check --group, then run this again")

    def _check_groups(self, seen: GroupsPlan, members: Sequence[str], *, behind_too: bool = True) -> None:
        self._check_known(seen)
        self._check_movable(
            (
                plan
                for plan in seen.groups
                if plan.state not in MOVED and (behind_too or plan.state is not GroupState.BEHIND)
            ),
            members,
        )

    def _check_movable(self, plans: Iterable[GroupPlan], members: Sequence[str] = ()) -> None:
        """Refuses if there are groups that cannot move.

        Args:
            plans: the groups that cannot move.
            members: names of groups that have members at the source.
        """
        plans = list(plans)
        active = any(plan.state is GroupState.ACTIVE for plan in plans)
        stuck = [f"group {plan.group}: {plan.why}{_remedy(plan)}" for plan in plans]
        stuck += [
            f"group {name}: it has members at the source, which would go on reading there; stop its consumers"
            for name in members
        ]
        if stuck:
            lines = "\n  ".join(stuck[:STUCK])
            more = f"\n  and {len(stuck) - STUCK} more; `mirror sync --dry-run` has all" if len(stuck) > STUCK else ""
            for tool, due, side in zip(self._world.tools, (members, active), ("source", "destination"), strict=True):
                if due:
                    more += f"\n  {tool} --describe --members --group NAME names a group's members at the {side}"
            raise Refused(
                f"these groups cannot move:\n  {lines}{more}\n  then run this again; --group NAME moves only what it "
                "names"
            )

    # -- step 5 --------------------------------------------------------------------------------------------------------

    async def _certify(self, state: State, plans: Sequence[GroupPlan]) -> None:
        found = await self._look()
        self._check(found)
        self._check_unmoved(state, found)
        self._check_copied(state, found)
        audited = state.done["audited"]
        data = certificate(
            self._world.subject,
            found.rows,
            program=self._options.version,
            exact=self._world.exact,
            audit=Audit(audited["verdict"], audited["code"]),
            groups=[group_data(plan) for plan in plans],
            not_covered=found.not_covered,
            stood_still_s=state.done["stopped"]["stood_still_s"],
        )
        write_whole(self._folder / FILE, as_json(data))
        self._note(state, "certified", certificate=data)
        self._tell(f"5 certificate: {self._folder / FILE}")

    def _written_before(self, state: State) -> None:
        """Writes the certificate again if the file was removed."""
        path = self._folder / FILE
        if path.exists():
            self._tell(f"5 certificate: written before, {path}")
            return
        write_whole(path, as_json(state.done["certified"]["certificate"]))
        self._tell(f"5 certificate: {path} was gone, and is written again")

    def _note(self, state: State, step: str, **what: Any) -> None:
        state.note(step, **what)
        state.write(self._folder)


def _remedy(plan: GroupPlan) -> str:
    if plan.state is GroupState.ACTIVE:
        return ", which read on there already; stop its consumers there, and start them once its offsets are there"
    return f"; {plan.remedy}" if plan.remedy else ""


def _topics(rows: Sequence[PartitionEnds]) -> str:
    return many(len({row.topic for row in rows}), "topic")
