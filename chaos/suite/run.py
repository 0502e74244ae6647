"""A run of the suite. Scenarios are grouped by the clusters that they need; each stage is played, compared, audited and
reported.

A quick run has two tracks (``chaos.suite.tracks``), since a scenario mostly waits: for timeouts, and for brokers that
come back.
"""

import datetime
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import count, groupby
from pathlib import Path
from typing import Protocol

import chaos.scenarios  # noqa: F401 - registers them
from chaos.errors import ChaosError
from chaos.play.sides import Pair
from chaos.play.stage import Stage
from chaos.play.trials import did_not_strike
from chaos.scenario import SCENARIOS, TRIES, Scenario, Shape
from chaos.suite import audits, report, results
from chaos.suite.ahead import Ahead
from chaos.suite.clusters import Clusters, fetch
from chaos.suite.outcome import Outcome
from chaos.suite.plan import Plan
from chaos.suite.publishing import WRITTEN, Publishing
from chaos.suite.results import Row
from chaos.suite.tracks import Say, side_by_side
from lab.commit import UNKNOWN, of_now
from mirror.sandbox import SandboxError

__all__ = ["Progress", "run", "serving"]

_FAILING_STAGES = 2
"""Number of stages that did not hold after which a scenario ends (1 in a quick run): more repetitions would only take
time."""

_AUDITED_TOGETHER = 40
"""In a full run, an audit is made when this many topics wait for it: Spark takes longer to start than to compare the
topics of one scenario. If the run is interrupted and continued, scenarios that wait for an audit are played again."""

_numbers = count(1)


class Progress(Protocol):
    """Shows the progress; see ``lab.console``."""

    def step(self, text: str, /) -> None:
        """Shows the name of the current step."""

    def detail(self, text: str, /) -> None:
        """Shows the progress of the current step."""

    def line(self, text: str, /) -> None:
        """Shows a line that stays on the screen."""


def run(plan: Plan, progress: Progress) -> list[Row]:
    """Carries out a plan, and returns the rows. The files in the working folder are written after each scenario.

    Raises:
        ChaosError: a track has ended with an error (the rows so far are saved); there is no run to continue; or
            scenarios of a complete run could not be audited.
        SandboxError: Kafka could not be downloaded.
    """
    publishing = Publishing(plan, SCENARIOS)
    label = _Label()
    run_of, old = _begun(plan, publishing, label.begun)
    done = {row.scenario: row for row in old if not row.again and plan.continues}
    chosen = [one for one in plan.select(SCENARIOS) if one.name not in done]
    shapes = {one.name: one.shape for one in chosen}
    if plan.quick:  # starting clusters takes longer than most scenarios: use as few as possible
        shapes = {name: serving(shape, shapes.values()) for name, shape in shapes.items()}
    turn = {shape: at for at, shape in enumerate(dict.fromkeys(shapes.values()))}
    names = [one.name for one in sorted(chosen, key=lambda one: (turn[shapes[one.name]], one.damages))]
    rows: dict[str, Row] = {}

    def known() -> list[Row]:
        return results.merge(old, rows.values(), SCENARIOS)

    def hear(said: Row | tuple[str, str]) -> None:
        if isinstance(said, Row):
            said.commit, said.run = label.now(), run_of
            said.again = not plan.is_whole
            rows[said.scenario] = said
            publishing.keep(known())
        else:
            how, text = said
            if how == "step":
                label.now()
            getattr(progress, how)(text)

    progress.step("fetching what the brokers and the writers run")
    fetch(shapes.values())
    work = partial(_track, plan, shapes)
    try:
        if plan.tracks > 1:
            side_by_side(work, names, plan.tracks, hear)
        else:
            work(iter(names), hear)
    finally:
        # However the run ends: it has to stay visible that a scenario was played by itself.
        if rows and not plan.is_whole:
            publishing.publish(known())
    if plan.is_whole:
        unaudited = [row for row in known() if row.audit == audits.NOT_RUN and not row.problems and not row.again]
        if left := [row.scenario for row in unaudited if plan.audit]:
            raise ChaosError(
                f"not audited, since their clusters had to be given up: {', '.join(left)}",
                "CHAOS_CONTINUE=1 plays them once more, and publishes the run",
            )
        publishing.publish(known())
    progress.line(f"written to {publishing.report} and {publishing.rows}")
    return [*done.values(), *rows.values()]


class _Label:
    """The commits of the files during a run, since every mirror runs the files as they are when it is started. The list
    only grows: if changes are taken back, what was played with them does not count as of one commit."""

    def __init__(self) -> None:
        self.begun = of_now(*WRITTEN)
        self._seen = [self.begun]

    def now(self) -> str:
        """Looks at the files, and returns all commits that were seen so far, in order, as text."""
        now = of_now(*WRITTEN)
        if now not in self._seen and now != UNKNOWN:  # if git has failed, that tells nothing about the files
            self._seen.append(now)
        return " to ".join(self._seen)


def _begun(plan: Plan, publishing: Publishing, commit: str) -> tuple[str, list[Row]]:
    """Returns the time at which this run began, and the rows of earlier runs that stay.

    Raises:
        ChaosError: there is no run that could be continued.
    """
    now, old = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S"), publishing.before()
    if not plan.continues:
        return now, old
    kept = results.continued(old, command=plan.command, commit=commit)
    if publishing.is_over(kept):
        raise ChaosError(
            f"the complete run of {kept[0].run} has come to its end", "leave CHAOS_CONTINUE out to begin another one"
        )
    return old[0].run, kept


def _track(plan: Plan, shapes: Mapping[str, Shape], names: Iterator[str], say: Say) -> None:
    """Plays scenarios one after the other. Reports the progress to ``say``, and each row whenever it has changed.

    Args:
        plan: the plan.
        shapes: name of the scenario -> shape of the clusters on which it is played.
        names: names of the scenarios.
        say: gets rows, and the messages of ``_Saying``.
    """
    suite = _Suite(plan, _Saying(say), say)
    with Clusters() as clusters, closing(suite):
        for shape, mine in groupby(map(SCENARIOS.__getitem__, names), key=lambda one: shapes[one.name]):
            suite.shape(shape, mine, clusters)


class _Saying:
    """A ``Progress`` that passes everything on as (name of the method, text)."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def step(self, text: str) -> None:
        self._say(("step", text))

    def detail(self, text: str) -> None:
        self._say(("detail", text))

    def line(self, text: str) -> None:
        self._say(("line", text))


def serving(shape: Shape, others: Iterable[Shape]) -> Shape:
    """Returns a shape that suits this shape and all others that can share clusters with it."""
    for other in others:
        shape = other.joined(shape)
    return shape


class _Suite:
    """Plays the scenarios of a track."""

    def __init__(self, plan: Plan, progress: Progress, keep: Callable[[Row], None]) -> None:
        self._plan = plan
        self._progress = progress
        self._keep = keep
        self._unaudited: list[tuple[Row, list[str], audits.Mode]] = []
        self._ahead = Ahead()

    def close(self) -> None:
        """Ends the stage that is prepared ahead, if there is one."""
        self._ahead.drop()

    def shape(self, shape: Shape, scenarios: Iterable[Scenario], clusters: Clusters) -> None:
        """Plays all scenarios of one shape of clusters, and audits their topics."""
        for one, following in _followed(scenarios):
            # Only in a quick run: a stage that is prepared ahead would disturb an audit in between, and the recoveries
            # that a full run measures.
            self._scenario(one, shape, clusters, following if self._plan.quick and not one.damages else None)
            waiting = sum(len(topics) for _, topics, _ in self._unaudited)
            if one.damages or (not self._plan.quick and waiting >= _AUDITED_TOGETHER):
                self._audit(clusters)
            if one.damages:
                clusters.drop()
        self._audit(clusters)

    def _scenario(self, one: Scenario, shape: Shape, clusters: Clusters, following: Scenario | None) -> None:
        wanted = self._plan.repetitions(one)
        row = Row(
            scenario=one.name, group=one.group, does=one.does, version="", brokers=shape.brokers,
            command=self._plan.command, at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
            wanted=wanted, evidence=[str(one) for one in one.struck],
        )  # fmt: skip
        began_at = time.monotonic()
        topics: list[str] = []
        failing = missed = 0
        most = 1 if self._plan.quick else _FAILING_STAGES
        while row.repetitions < wanted and failing < most:
            self._progress.step(f"{one.name} ({row.repetitions} of {wanted})")
            before = row.repetitions
            outcome = self._stage(one, shape, clusters, following, row)
            _add(row, outcome)
            topics += outcome.audited
            failing += bool(outcome.problems)
            missed = missed + 1 if row.repetitions == before and not outcome.problems else 0
            if missed == TRIES:
                row.problems.append(did_not_strike(outcome.missed))
                break
        row.seconds = round(time.monotonic() - began_at, 1)
        row.load = round(os.getloadavg()[0], 1)
        if not self._plan.audit:
            row.audit = audits.LEFT_OUT
        elif not topics and not row.problems:
            row.audit = audits.NOTHING
        if topics and not row.problems:
            self._unaudited.append((row, topics, audits.mode_of(one.flow)))
        self._tell(row)
        self._keep(row)

    def _stage(self, one: Scenario, shape: Shape, clusters: Clusters, following: Scenario | None, row: Row) -> Outcome:
        try:
            pair = clusters.pair(shape)
            row.version = pair.version
            with self._ahead.take(one) or self._made(one, pair, done=row.repetitions, tries=row.tries) as stage:

                def over() -> None:
                    if following is not None and row.repetitions + stage.outcome.repetitions >= row.wanted:
                        self._ahead.prepare(self._made(following, pair, done=0, tries=0))

                outcome = stage.play(self._progress.detail, over=over)
                self._keep_logs(stage)
            if outcome.problems:
                pair.heal()
            return outcome
        except (SandboxError, ChaosError) as error:
            self._ahead.drop()
            clusters.drop()  # in an unknown state
            self._give_up_audits(str(error))
            return Outcome(problems=[str(error)])

    def _made(self, one: Scenario, pair: Pair, *, done: int, tries: int) -> Stage:
        """Returns the next stage of a scenario. ``done``: its repetitions so far; ``tries``: its tries so far."""
        return Stage(
            one, pair, prefix=f"{one.name}-{next(_numbers)}",
            repetitions=min(one.per_stage, self._plan.repetitions(one) - done), workers=self._plan.workers,
            seed=done, tries=tries, draw=self._plan.seed + tries, writers=self._plan.writers, quick=self._plan.quick,
            pace=self._plan.pace,
        )  # fmt: skip

    def _keep_logs(self, stage: Stage) -> None:
        """Copies the logs of a stage's mirrors into the working folder, for later questions; if there was a problem,
        also those of the brokers."""
        folder = self._plan.out / "chaos" / stage.prefix
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if stage.outcome.figures:  # also those of tries that did not strike
            (folder / "figures.txt").write_text("\n".join(stage.outcome.figures) + "\n")
        if stage.outcome.problems:
            (folder / "problems.txt").write_text("\n".join(stage.outcome.problems) + "\n")
        for path in [*stage.processes.folder.glob("*.log"), *stage.processes.folder.glob("*.yaml")]:
            with suppress(OSError):
                shutil.copy(path, folder)
        if stage.outcome.problems:
            for side in stage.pair.sides:
                for node_id, log in side.broker_logs().items():
                    with suppress(OSError):
                        shutil.copy(log, folder / f"{side.name}-{node_id}.log")

    def _audit(self, clusters: Clusters) -> None:
        """Audits all topics that wait for it, then deletes them."""
        waiting, self._unaudited = self._unaudited, []
        if not waiting:
            return
        modes = sorted({mode for _, _, mode in waiting} if self._plan.audit else ())
        # In parallel: one waits for brokers, and for Spark to start, while another one computes.
        with (
            tempfile.TemporaryDirectory(prefix="mirror-chaos-") as folder,
            ThreadPoolExecutor(max_workers=max(1, len(modes))) as pool,
        ):
            begun = [
                pool.submit(self._audit_mode, [one for one in waiting if one[2] == mode], mode, clusters, Path(folder))
                for mode in modes
            ]
            for one in begun:
                one.result()
        topics = [topic for _, names, _ in waiting for topic in names]
        for side in clusters.current.sides:
            side.delete(topics)
        for row, _, _ in waiting:
            self._keep(row)

    def _give_up_audits(self, why: str) -> None:
        """Reports that the topics that wait for an audit are gone, because the clusters had to be given up."""
        waiting, self._unaudited = self._unaudited, []
        for row, _, _ in waiting if self._plan.audit else ():
            if self._plan.is_whole:
                self._progress.line(f"{row.scenario} was not audited, its clusters had to be given up: {why}")
            else:
                row.problems.append(f"not audited, its clusters had to be given up: {why}")
            self._tell(row)
            self._keep(row)

    def _audit_mode(
        self, waiting: list[tuple[Row, list[str], audits.Mode]], mode: audits.Mode, clusters: Clusters, folder: Path
    ) -> None:
        self._progress.step(f"auditing {len(waiting)} scenarios ({', '.join(mode)})")
        topics = [topic for _, names, _ in waiting for topic in names]
        verdict, said = audits.audit(
            clusters.current, topics, folder=folder, mode=mode, say=self._progress.detail
        )  # fmt: skip
        self._progress.line(f"audit of {len(topics)} topics: {verdict}")
        if verdict != audits.IDENTICAL and len(waiting) > 1:
            for one in waiting:  # find out which of the scenarios it is
                self._audit_mode([one], mode, clusters, folder)
            return
        for row, _, _ in waiting:
            row.audit = verdict
            if verdict != audits.IDENTICAL:
                row.problems.append(f"audit: {verdict}: {said}")

    def _tell(self, row: Row) -> None:
        verdict = "held" if not row.problems and row.repetitions >= row.wanted else "[red]DID NOT HOLD[/]"
        self._progress.line(
            f"{row.scenario}: {verdict}; struck {row.repetitions} times in {row.tries} tries, {row.records} records, "
            f"{row.lost} lost, "
            f"{row.doubled} doubled, {row.misplaced} misplaced, halted {row.halted or 'none'}, "
            f"recovery {report.recovery(row) or '-'} s, {row.seconds:.0f} s in all"
        )
        for said in [*row.figures, *row.problems]:
            self._progress.line("  " + said.replace("[", "\\["))


def _followed(scenarios: Iterable[Scenario]) -> Iterator[tuple[Scenario, Scenario | None]]:
    """Yields each scenario with the next one; None after the last."""
    rest = iter(scenarios)
    one = next(rest, None)
    while one is not None:
        following = next(rest, None)
        yield one, following
        one = following


def _add(row: Row, outcome: Outcome) -> None:
    row.tries += outcome.tries
    row.lacked += outcome.lacked
    if not outcome.repetitions and not outcome.problems:  # the fault did not strike, so the stage shows nothing
        return
    row.repetitions += outcome.repetitions
    row.prefixes += outcome.prefixes
    row.audited += len(outcome.audited)
    row.topics += outcome.topics
    row.records += outcome.compared.records
    row.lost += outcome.compared.lost
    row.doubled += outcome.compared.doubled
    row.misplaced += outcome.compared.misplaced
    row.uncompared += not outcome.was_compared
    row.halted = dict(Counter(row.halted) + Counter(outcome.halted))
    row.notes = dict(Counter(row.notes) + Counter(outcome.notes))
    row.figures += outcome.figures
    row.recover_s += outcome.recovered_s
    row.problems += outcome.problems
