"""A stage plays one scenario on a set of topics: with the stream, the mirror, the operations that an act uses, and the
comparison at the end."""

import random
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from chaos.errors import ChaosError, unforeseen
from chaos.judging.keeping import inquest
from chaos.judging.reading import read
from chaos.play import verdict
from chaos.play.catching import caught_up
from chaos.play.halts import Halts
from chaos.play.mirrors import MirrorProcess, config_text, known
from chaos.play.placing import widen
from chaos.play.sides import Name, Offsets, Pair, Side
from chaos.play.trials import Trials
from chaos.producers.streams import Stream
from chaos.producers.topics import TopicPlan, named
from chaos.scenario import Scenario
from chaos.suite.outcome import Outcome
from chaos.waiting import NOW_AND_THEN_S, PATIENCE_S, until
from lab.evidence import Evidence, Record
from mirror.sandbox.children.process import Processes

__all__ = ["Stage"]

_QUICK_PACE = 0.35
_SLOW, _FAST = 5.0, 100.0
"""Only rates between these two may be changed by ``pace``: with them, a stream only has to go on."""
_QUICK_SESSION_MS = 4_000
"""``session.timeout.ms`` in a quick run. The members of a killed mirror leave its group after this time; with a longer
timeout, the scenario would only wait longer."""


class Stage:
    """The environment of an act. A context manager that ends all its processes on exit. The topics stay for the audit.

    Args:
        scenario: the scenario to play.
        pair: the clusters.
        prefix: prefix of the names of the stage's topics.
        repetitions: number of repetitions of the fault on this stage.
        seed: number of repetitions on previous stages of the scenario.
        tries: number of tries on previous stages of the scenario.
        draw: the seed of random nemeses.
        workers: minimum number of workers of the stage's mirrors.
        writers: the kinds of producers that write; None: all. Topics of other kinds are left out.
        quick: True if an act should do less where it can.
        pace: factor by which the writers' rates are multiplied; by default 1, or less in a quick run.

    Attributes:
        source, destination: the two sides.
        topics: plans of the topics, under their full names.
        seed, draw: as above.
        chance: random generator for moments, victims and so on.
        stream: the first producers. They run when the act begins, unless the stage is bare.
        mirror: the first mirror. It runs when the act begins, unless the stage is bare.
        strangers: partition -> number of records that somebody else has written to the destination, in transactions
            that are aborted in the end.
        record: evidence of the fault that the act and the stage have seen.
        outcome: the results, which are added to on the way.
        halts: partitions that have to halt, or may halt.
        trials: the repetitions, and whether the fault has struck in them.
        since: partition -> offset before which nothing is compared.
        left: partitions of which only the records that are left at the destination are compared.
        trimmed: partitions of which the source has deleted records. Only the records that are left there are compared.
        gaps: partition -> range of source offsets that may be reported as skipped, if they are missing.
        survivors: partitions that are compacted at both sides. Only the last record of each key is compared.
        check_starts: True if the logs also have to begin at the same offsets.
    """

    def __init__(
        self, scenario: Scenario, pair: Pair, *, prefix: str, repetitions: int = 1, workers: int | None = None,
        seed: int = 0, tries: int = 0, draw: int = 0, writers: Container[str] | None = None, quick: bool = False,
        pace: float | None = None,
    ) -> None:  # fmt: skip
        self.scenario = scenario
        self.pair = pair
        self.source: Side = pair.source
        self.destination: Side = pair.destination
        self.prefix = prefix
        self.repetitions = repetitions
        self.quick = quick
        self._pace = pace or (_QUICK_PACE if quick else 1.0)
        plans = tuple(plan for plan in scenario.topics if writers is None or plan.writing in writers)
        self.topics = named(plans, prefix)
        self.seed = seed
        self.draw = draw
        self.chance = random.Random(f"{scenario.name}/{seed}/{tries}")
        self.record = Record()
        self.outcome = Outcome(topics=len(self.topics))
        self.mirrors: list[MirrorProcess] = []
        self.streams: list[Stream] = []
        self._workers = scenario.workers if workers is None else max(workers, scenario.workers)
        self.check_starts = False
        self.halts = Halts(self)
        self.trials = Trials(self)
        self.since: dict[Name, int] = {}
        self.left: list[Name] = []
        self.trimmed: list[Name] = []
        self.gaps: dict[Name, tuple[int, int]] = {}
        self.survivors: list[Name] = []
        self.strangers: Counter[Name] = Counter()
        self._skips_seen: Counter[MirrorProcess] = Counter()
        self._open = ExitStack()
        self.processes = Processes()
        self._open.callback(self.processes.close)
        self._prepared = False
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything that the stage has started."""
        self._open.close()

    # -- operations of an act ------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[Name]:
        """All partitions of the stage."""
        return [(plan.name, index) for plan in self.topics for index in range(plan.partitions)]

    @property
    def copied(self) -> list[Name]:
        """The partitions that must not halt."""
        return [name for name in self.names if name not in self.halts.permitted]

    def topic(self, part: str) -> str:
        """Returns the full name of the stage's topic whose plan has this name."""
        return next(plan.name for plan in self.topics if plan.name == f"{self.prefix}-{part}")

    @property
    def mirror(self) -> MirrorProcess:
        return self.mirrors[0]

    @property
    def stream(self) -> Stream:
        return self.streams[0]

    @property
    def ended(self) -> int:
        """Number of transactions that the stage's producers have ended."""
        return sum(stream.transactions for stream in self.streams)

    def repeat(self) -> Iterator[int]:
        """See ``Trials.repeat``."""
        return self.trials.repeat()

    def seen(self, what: Evidence, count: int = 1) -> None:
        """Notes evidence that the act has seen, ``count`` times."""
        self.record.note(what, count)

    def await_seen(self, what: Evidence, timeout_s: float = 30.0) -> bool:
        """Waits for evidence, and returns True if it was seen in time. If not, the try does not count as a strike."""
        return self.soon(lambda: self.trials.seen()[what.name] >= what.least, timeout_s)

    def await_that(self, condition: Callable[[], object], what: Evidence, timeout_s: float = 30.0) -> bool:
        """Waits for a condition that is evidence, notes it, and returns True if it held in time. If not, the try does
        not count as a strike."""
        came = self.soon(condition, timeout_s)
        self.seen(what, int(came))
        return came

    def pause(self, seconds: float) -> None:
        """Lets the fault last for some seconds, during which the mirrors are still looked at (``look``)."""
        until_at = time.monotonic() + seconds
        self.soon(lambda: time.monotonic() >= until_at, seconds)

    def soon(self, condition: Callable[[], object], timeout_s: float) -> bool:
        """Waits for a condition, and returns True if it held in time. It is checked at least once."""
        deadline_at = time.monotonic() + timeout_s
        while not (came := bool(condition())) and time.monotonic() < deadline_at:
            self.look()
            time.sleep(NOW_AND_THEN_S)
        return came

    @property
    def records(self) -> list[Record]:
        """All records with evidence of the fault."""
        return [self.record, *(mirror.record for mirror in self.mirrors), *self.source.records,
                *self.destination.records]  # fmt: skip

    @property
    def group(self) -> str:
        """The consumer group of the stage's mirrors."""
        return f"mirror-{self.prefix}"

    def in_group(self, name: str) -> dict[str, object]:
        """Returns configuration keys for a mirror in another group. ``name``: suffix of the group's name."""
        return known({"group.id": f"{self.group}-{name}"})

    def create_topics(self) -> None:
        """Creates the topics at the source. The mirror creates those of the destination."""
        self.source.create(self.topics)

    def start_stream(self, plans: Sequence[TopicPlan] | None = None, *, rate: float | None = None) -> Stream:
        """Starts producers, which write until the act is over.

        Args:
            plans: their topics; None: all topics of the stage.
            rate: see ``Scenario.rate``; None: the rate of the stage.
        """
        stream = Stream(
            self.source.bootstrap_servers, self.topics if plans is None else plans, folder=self.processes.folder,
            rate=self._rate if rate is None else rate, seed=len(self.streams),
        )  # fmt: skip
        self.streams.append(self._open.enter_context(stream))
        return stream.start()

    @property
    def pace(self) -> float:
        """Factor by which the rate of the scenario is multiplied. It is 1 if the scenario has a special rate because it
        waits for a number of records."""
        return self._pace if _SLOW < self.scenario.rate < _FAST else 1.0

    @property
    def _rate(self) -> float:
        return self.scenario.rate * self.pace

    def start_mirror(
        self,
        *,
        flow: Mapping[str, object] | None = None,
        cluster: Mapping[str, object] | None = None,
        top: Mapping[str, object] | None = None,
        source: str | None = None,
        destination: str | None = None,
        workers: int | None = None,
    ) -> MirrorProcess:
        """Starts a mirror of the stage's topics. A second mirror is like one on another machine.

        Args:
            flow, cluster, top: configuration keys, which override those of the scenario.
            source, destination: bootstrap servers; None: those of the clusters.
            workers: number of workers; None: that of the stage.
        """
        config = self.processes.folder / f"mirror-{len(self.mirrors)}.yaml"
        usual = {
            "group.id": self.group, "workers": workers or self._workers,
            # Any free port: several mirrors run here.
            "http.listen": "127.0.0.1:0",
            **({"session.timeout.ms": _QUICK_SESSION_MS} if self.quick else {}),
        }  # fmt: skip
        text = config_text(
            source or self._servers(self.source),
            destination or self._servers(self.destination),
            [plan.name for plan in self.topics],
            flow={**self.scenario.flow, **(flow or {})},
            cluster={**self.scenario.cluster, **(cluster or {})},
            top=known({**usual, **self.scenario.top, **(top or {})}),
        )
        config.write_text(text)
        mirror = MirrorProcess(config, processes=self.processes)
        self.mirrors.append(mirror)
        self.halts.begun(mirror)
        return mirror

    def _servers(self, side: Side) -> str:
        """Returns the bootstrap servers for a mirror. If the clusters have a proxy only for other scenarios, it is
        bypassed."""
        return side.mirror_servers if self.scenario.shape.proxied or side.listener else side.bootstrap_servers

    def begin(self) -> None:
        """Creates the topics, starts mirror and stream, and waits until something is copied in every partition."""
        self.create_topics()
        self.start_mirror()  # first, since it takes longer to start than the producers
        self.start_stream()
        self.flowing()

    def flowing(self) -> None:
        """Waits until something is copied in every partition that has a producer. If no partition has one, waits for
        every partition that must not halt."""
        quiet = {plan.name for plan in self.topics if plan.writing == "nobody"}

        def some() -> bool:
            self.look()
            ends = self.destination.ends([name for name in self.copied if name[0] not in quiet] or self.copied)
            return bool(ends) and all(end > 0 for end in ends.values())

        until(some, lambda: f"something copied in every partition; {self.told()}", every_s=NOW_AND_THEN_S)

    def moment(self, most_s: float = 1.5) -> None:
        """Waits for a random time of up to ``most_s`` seconds, so that the fault strikes at a random moment."""
        time.sleep(self.chance.random() * most_s)

    def recovered(self) -> float:
        """Waits, after the end of the fault, until everything that the source has now is copied. Returns the time that
        took in seconds, which counts as a recovery."""
        began_at = time.monotonic()
        self.caught_up()
        took_s = time.monotonic() - began_at
        self.outcome.recovered_s.append(round(took_s, 2))
        return took_s

    def caught_up(self, some: Sequence[Name] = ()) -> None:
        """Waits until the destination has everything that the source has committed by now. ``some``: only of these
        partitions; empty: of all that must not halt."""
        caught_up(self, list(some) or self.copied)

    def holds(self, topic: str, index: int = 0) -> dict[int, bytes]:
        """Returns offset -> digest of the source's records of a partition, to be called before a fault removes them."""
        return read(self.source.bootstrap_servers, [(topic, index)], "read_committed")[topic, index]

    def compare_since(self, offsets: Offsets) -> None:
        """Leaves records before these offsets out of the comparison, and their topics out of the audit: retention or
        compaction has removed some of them on one side."""
        self.since.update(offsets)

    def compare_what_is_left(self, names: Sequence[Name]) -> None:
        """Compares only the records that the destination's retention has left of these partitions. They are read only
        when both sides are compared: brokers go on deleting for a while after retention was switched off."""
        self.left.extend(names)

    def widen(self, topic: str) -> Name:
        """Adds a partition to a source topic. Producers write into it from then on. Returns the new partition."""
        plan = next(plan for plan in self.topics if plan.name == topic)
        wider = replace(plan, partitions=plan.partitions + 1)
        widen(self.source, topic, wider.partitions)
        self.topics = tuple(wider if one is plan else one for one in self.topics)
        for stream in self.streams:
            stream.replan(wider)
        return topic, plan.partitions

    def look(self) -> None:
        """Reads the mirrors' output, and checks that all processes that should run do.

        Raises:
            ChaosError: a partition has halted that must not; a process has died that nobody killed; a mirror has
                printed something that is not an event; or a mirror has skipped records that the source still has.
        """
        for stream in self.streams:
            stream.check()
        for side in self.pair.sides:
            if died := side.died():
                raise ChaosError(", ".join(died))
        for mirror in self.mirrors:
            mirror.look()
            self.halts.check(mirror)
            self._judge_skips(mirror)
            if mirror.conduct.problems:
                raise ChaosError(f"{'; '.join(mirror.conduct.problems[:3])}; {mirror.told()}")

    def _judge_skips(self, mirror: MirrorProcess) -> None:
        """Raises ChaosError if the mirror has skipped records that the source still has. Since a log start only grows,
        a late look may miss that, but never reports it wrongly."""
        while told := mirror.skipped[self._skips_seen[mirror] :]:
            name, _, end = told[0]
            start = self.source.starts([name]).get(name) if name in self.gaps else end
            if start is None:  # the source does not answer now: look again later
                return
            if start < end:
                raise ChaosError(f"{name[0]}-{name[1]} was skipped up to {end}, and the source has it from {start} on")
            self._skips_seen[mirror] += 1

    def note(self, what: str, count: int = 1) -> None:
        """Counts something for the report."""
        self.outcome.notes[what] = self.outcome.notes.get(what, 0) + count

    def figure(self, text: str) -> None:
        """Adds a measurement to the report, in words."""
        self.outcome.figures.append(text)

    def told(self) -> str:
        """Returns the mirrors' last output."""
        return "\n".join(mirror.told() for mirror in self.mirrors)

    # -- the end -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Does what comes before the act: starts stream and mirror, unless the scenario is bare. To be called once. If
        it fails, ``play`` reports that."""
        self._prepared = True
        try:
            if not self.scenario.bare:
                self.begin()
        except Exception as error:
            self._failure = error

    def play(self, say: Callable[[str], None] = lambda _: None, *, over: Callable[[], None] = lambda: None) -> Outcome:
        """Prepares the stage if that is not done, runs the act, and compares both sides. All problems are in the
        outcome.

        Args:
            say: called with each step, in words.
            over: called when the fault is over and the clusters are healthy again. What follows only reads.
        """
        out = self.outcome
        try:
            if not self._prepared:
                say("starting stream and mirror")
                self.prepare()
            if self._failure is not None:
                raise self._failure
            say("fault")
            self.trials.begin()
            self.scenario.act(self)
            verdict.finish(self, say, over)
        except ChaosError as error:
            out.problems.append(str(error))
            if self.scenario.acknowledged:
                inquest(self)
        except Exception as error:
            out.problems.append(f"{unforeseen(error)}; {self.told()}")
        for mirror in self.mirrors:
            mirror.look()
            for what, count in mirror.counts.items():
                self.note(what, count)
        return out

    def await_replicas(self) -> None:
        """Waits until all replicas of the stage's topics are in sync at both sides."""
        names = [plan.name for plan in self.topics]
        for side in self.pair.sides:
            side.await_in_sync(names)

    @property
    def patience_s(self) -> float:
        """Default timeout in seconds, for acts that wait themselves."""
        return PATIENCE_S
