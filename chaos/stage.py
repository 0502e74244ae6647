"""One scenario on its topics: the stream, the mirror, what the act may do, and the comparison at the end."""

import random
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from chaos.compare import compare, compare_ends, compare_order
from chaos.errors import ChaosError
from chaos.mirrors import MirrorProcess, config_text, known
from chaos.outcome import Outcome
from chaos.reading import Isolation, Reading, read, read_together
from chaos.scenario import Scenario
from chaos.sides import Name, Offsets, Pair, Side
from chaos.streams import Stream
from chaos.topics import TopicPlan, named
from chaos.waiting import NOW_AND_THEN_S, PATIENCE_S, until
from mirror.sandbox.process import Processes
from mirror.service.exits import EXIT_CONFIG

__all__ = ["Stage"]

_EXIT_ALL_HALTED = 2
_STABLE_TIMEOUT_S = 120.0
_QUICK_PACE = 0.35
_SLOW, _FAST = 5.0, 100.0
"""Rates between which a stream is only there to go on."""
_QUICK_SESSION_MS = 4_000
"""What is left of a killed mirror is out of its group this soon: waiting for that is all that a longer one adds."""


class Stage:
    """What an act works with. A context manager that leaves no process behind; topics stay for the audit.

    Args:
        scenario: to be played.
        pair: the clusters.
        prefix: of the names of its topics.
        repetitions: of the fault, on this stage.
        seed: of everything drawn by chance.
        workers: of its mirrors, at least.
        writers: the kinds of producers that write; all by default. Topics of others are left out.
        quick: whether an act that can be smaller is to be.

    Attributes:
        source, destination: the two sides.
        topics: the plans, under their full names.
        seed: how many repetitions other stages of the scenario have had.
        chance: draws moments, victims and so on.
        stream: the producers; running when the act begins, unless the stage is bare.
        mirror: the first mirror; likewise.
        strangers: records that somebody else wrote to the destination, in transactions that end aborted.
        outcome: is filled on the way.
        check_starts: whether the logs have to begin at the same offsets, too.
    """

    def __init__(
        self, scenario: Scenario, pair: Pair, *, prefix: str, repetitions: int = 1, workers: int | None = None,
        seed: int = 0, writers: Container[str] | None = None, quick: bool = False,
    ) -> None:  # fmt: skip
        self.scenario = scenario
        self.pair = pair
        self.source: Side = pair.source
        self.destination: Side = pair.destination
        self.prefix = prefix
        self.repetitions = repetitions
        self.quick = quick
        plans = tuple(plan for plan in scenario.topics if writers is None or plan.writing in writers)
        self.topics = named(plans, prefix)
        self.seed = seed
        self.chance = random.Random(f"{scenario.name}/{seed}")
        self.outcome = Outcome()
        self.mirrors: list[MirrorProcess] = []
        self.streams: list[Stream] = []
        self._workers = scenario.workers if workers is None else max(workers, scenario.workers)
        self.check_starts = False
        self._expected: dict[Name, tuple[str, ...]] = {}
        self._tolerated: dict[Name, tuple[str, ...]] = {}
        self._since: dict[Name, int] = {}
        self._left: list[Name] = []
        self.strangers: Counter[Name] = Counter()
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
        """End whatever it started."""
        self._open.close()

    # -- what an act does ----------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[Name]:
        """All partitions of the stage."""
        return [(plan.name, index) for plan in self.topics for index in range(plan.partitions)]

    @property
    def copied(self) -> list[Name]:
        """Those that are not expected to halt, nor may."""
        return [name for name in self.names if name not in self._expected and name not in self._tolerated]

    def topic(self, part: str) -> str:
        """The full name of the stage's topic whose plan was named so."""
        return next(plan.name for plan in self.topics if plan.name == f"{self.prefix}-{part}")

    @property
    def mirror(self) -> MirrorProcess:
        return self.mirrors[0]

    @property
    def stream(self) -> Stream:
        return self.streams[0]

    @property
    def ended(self) -> int:
        """Transactions that the stage's producers have ended."""
        return sum(stream.transactions for stream in self.streams)

    def repeat(self) -> Iterator[int]:
        """``for _ in stage.repeat()``: as often as the stage is to repeat its fault, counting."""
        for at in range(self.repetitions):
            yield at
            self.outcome.repetitions += 1

    @property
    def group(self) -> str:
        """The consumer group of the stage's mirrors."""
        return f"mirror-{self.prefix}"

    def in_group(self, name: str) -> dict[str, object]:
        """Configuration keys that put a mirror into another group."""
        return known({"group.id": f"{self.group}-{name}"})

    def create_topics(self) -> None:
        """At the source; the mirror makes the destination's."""
        self.source.create(self.topics)

    def start_stream(self, plans: Sequence[TopicPlan] | None = None, *, rate: float | None = None) -> Stream:
        """Producers for all topics, or for some; records go on coming until the act is over."""
        stream = Stream(
            self.source.bootstrap_servers, self.topics if plans is None else plans, folder=self.processes.folder,
            rate=self._rate if rate is None else rate, seed=len(self.streams),
        )  # fmt: skip
        self.streams.append(self._open.enter_context(stream))
        return stream.start()

    @property
    def pace(self) -> float:
        """What the stream's rate is to the scenario's: a quick run has fewer records where nothing is waited for that
        comes with their number."""
        return _QUICK_PACE if self.quick and _SLOW < self.scenario.rate < _FAST else 1.0

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
        """A mirror of the stage's topics. A second one with other ``top`` keys is another machine's.

        Args:
            flow, cluster, top: configuration keys over those of the scenario.
            source, destination: bootstrap servers, where not the clusters' own.
            workers: of its supervisor.
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
        return mirror

    def _servers(self, side: Side) -> str:
        """What the mirror is told: past the proxy, where the clusters have one for the sake of other scenarios."""
        return side.mirror_servers if self.scenario.shape.proxied else side.bootstrap_servers

    def begin(self) -> None:
        """Topics, stream and mirror; returns when copying goes on in every partition."""
        self.create_topics()
        self.start_mirror()  # takes longer to begin than the producers
        self.start_stream()
        self.flowing()

    def flowing(self) -> None:
        """Wait until every partition has copied something."""

        def some() -> bool:
            self.look()
            ends = self.destination.ends(self.copied)
            return bool(ends) and all(end > 0 for end in ends.values())

        until(some, lambda: f"something copied in every partition; {self.told()}", every_s=NOW_AND_THEN_S)

    def moment(self, most_s: float = 1.5) -> None:
        """Some time, by chance: faults come at any moment."""
        time.sleep(self.chance.random() * most_s)

    def recovered(self) -> float:
        """Call it when the fault is over: waits until the mirror has copied what the source has now; the seconds."""
        began_at = time.monotonic()
        self.caught_up()
        took_s = time.monotonic() - began_at
        self.outcome.recovered_s.append(round(took_s, 2))
        return took_s

    def caught_up(self, some: Sequence[Name] = ()) -> None:
        """Wait until the destination has what the source has committed by now: of all partitions, or of some."""
        names = list(some) or self.copied
        if not self.scenario.exact:
            self._copied_by_count(names)
            return
        wanted = until(lambda: self._ends_of_source(names), lambda: f"the source's ends; {self.told()}")
        ends: dict[Name, int] = {}

        def there() -> bool:
            self.look()
            ends.update(self.destination.ends(names))
            return bool(ends) and all(ends[name] >= end for name, end in wanted.items())

        # A partition that has what is wanted goes on, too: what counts is that one of the others does.
        until(
            there,
            lambda: f"the destination to reach {self._behind(wanted)}; {self.told()}",
            moving=lambda: [ends.get(name) for name, end in wanted.items() if ends.get(name, -1) < end],
            every_s=NOW_AND_THEN_S,
        )

    def _copied_by_count(self, names: list[Name]) -> None:
        """The same where offsets differ: as many records, those of strangers not counted."""
        here = read(self.source.bootstrap_servers, names, "read_committed")

        def there() -> bool:
            self.look()
            # An open transaction of somebody else hides what is behind it from readers of committed records.
            found = read(self.destination.bootstrap_servers, names, "read_uncommitted")
            return all(len(found[name]) - self.strangers[name] >= len(here[name]) for name in names)

        until(there, lambda: f"as many records at the destination as {self._counts(here)}; {self.told()}")

    def _counts(self, reading: Reading) -> str:
        return ", ".join(f"{topic}-{index}: {len(records)}" for (topic, index), records in reading.items())

    def _ends_of_source(self, names: list[Name]) -> dict[Name, int]:
        self.look()
        return self.source.ends(names, committed=True)

    def _behind(self, wanted: Mapping[Name, int]) -> str:
        ends = self.destination.ends(list(wanted))
        return ", ".join(
            f"{topic}-{index} {end} (is {ends.get((topic, index))})"
            for (topic, index), end in wanted.items()
            if ends.get((topic, index), -1) < end
        )

    def announce_halt(self, topic: str, index: int, *reasons: str) -> None:
        """From now on this partition may halt with one of these reasons, and in the end it must have."""
        self._expected[topic, index] = reasons

    @property
    def _halts_are_meant(self) -> bool:
        return bool(self._expected or self._tolerated)

    def tolerate_halt(self, topic: str, index: int, *reasons: str) -> None:
        """From now on this partition may halt with one of these reasons, or go on: the act itself looks at it."""
        self._tolerated[topic, index] = reasons

    def expect_halt(self, topic: str, index: int, *reasons: str) -> None:
        """This partition is to halt with one of these reasons, and the others are to go on. Waits for it, and for them.

        The time until then is not a recovery.
        """
        self.announce_halt(topic, index, *reasons)

        def halted() -> bool:
            self.look()
            return any((topic, index) in mirror.halted_before for mirror in self.mirrors)

        until(halted, lambda: f"{topic}-{index} to halt with {' or '.join(reasons)}; {self.told()}")
        self.caught_up()

    def compare_since(self, offsets: Offsets) -> None:
        """Records before these offsets are not compared: retention or compaction has taken some of one side's. Nor are
        their topics audited."""
        self._since.update(offsets)

    def compare_what_is_left(self, names: Sequence[Name]) -> None:
        """The same for what the destination's retention has left of these partitions. That is looked at when both sides
        are compared: brokers go on deleting for a while after retention was switched off."""
        self._left.extend(names)

    def look(self) -> None:
        """Take in what the mirrors say; one that ended for a reason that may pass is started again, as systemd would.

        Raises:
            ChaosError: a partition halted that was not to, or a mirror died of a bug.
        """
        for stream in self.streams:
            stream.check()
        for mirror in self.mirrors:
            mirror.look()
            for name, halt in mirror.halts.items():
                reasons = self._expected.get(name) or self._tolerated.get(name)
                if reasons is None:
                    raise ChaosError(f"halted: {halt}")
                if halt.reason not in reasons:
                    raise ChaosError(f"{halt}, and {' or '.join(reasons)} was to be expected")
            if mirror.bugs:
                raise ChaosError(f"mirror run failed with a bug: {mirror.bugs[0]}; {mirror.told()}")
            if mirror.exit_code == EXIT_CONFIG:
                raise ChaosError(f"mirror run refused its configuration; {mirror.told()}")
            if mirror.wanted and not mirror.running and not self._halts_are_meant:
                self.note("starts")
                mirror.start()

    def note(self, what: str, count: int = 1) -> None:
        """Count something that the report tells."""
        self.outcome.notes[what] = self.outcome.notes.get(what, 0) + count

    def figure(self, text: str) -> None:
        """Something measured, in words, that the report tells."""
        self.outcome.figures.append(text)

    def told(self) -> str:
        """What the mirrors said last."""
        return "\n".join(mirror.told() for mirror in self.mirrors)

    # -- the end -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """What comes before the act, once; ``play`` tells what went wrong."""
        self._prepared = True
        try:
            if not self.scenario.bare:
                self.begin()
        except Exception as error:
            self._failure = error

    def play(self, say: Callable[[str], None] = lambda _: None, *, over: Callable[[], None] = lambda: None) -> Outcome:
        """Begin, act, and compare; whatever goes wrong is in the outcome.

        Args:
            say: told what goes on.
            over: called when the fault is over and the clusters are as they were: the rest is looking.
        """
        out = self.outcome
        try:
            if not self._prepared:
                say("starting stream and mirror")
                self.prepare()
            if self._failure is not None:
                raise self._failure
            say("fault")
            self.scenario.act(self)
            self.finish(say, over)
        except ChaosError as error:
            out.problems.append(str(error))
        except Exception as error:
            out.problems.append(f"{type(error).__name__}: {error}; {self.told()}")
        for mirror in self.mirrors:
            mirror.look()
            for what, count in mirror.counts.items():
                self.note(what, count)
        return out

    def finish(self, say: Callable[[str], None], over: Callable[[], None]) -> None:
        """End the stream, let the mirror catch up, stop it, compare."""
        say("ending the stream")
        for stream in self.streams:
            stream.stop()
        self.pair.heal()
        over()
        self._stable()
        say("catching up")
        self.caught_up()
        for mirror in self.mirrors:
            mirror.look()
            wanted, code = mirror.wanted, mirror.stop()
            if wanted and code not in (0, None) and not (code == _EXIT_ALL_HALTED and self._halts_are_meant):
                self.outcome.problems.append(f"mirror run ended with exit code {code}; {mirror.told()}")
        say("comparing")
        self.verify()

    def _stable(self) -> None:
        """No transaction is open at the source: what readers of either isolation level get ends at the same offset."""

        def stable() -> bool:
            ends = self.source.ends(self.names)
            return bool(ends) and ends == self.source.ends(self.names, committed=True)

        until(stable, "the source's transactions to end", timeout_s=_STABLE_TIMEOUT_S)

    def verify(self) -> None:
        """Plain consumers at both isolation levels, end offsets, halts."""
        out, names = self.outcome, self.copied
        if self._left:
            self.compare_since(until(lambda: self.destination.starts(self._left), "the destination's log starts"))
        method = compare if self.scenario.exact else compare_order
        there = self.destination.bootstrap_servers
        views: list[tuple[str, Isolation]] = [
            (self.source.bootstrap_servers, "read_committed"), (there, "read_committed"), (there, "read_uncommitted")
        ]  # fmt: skip
        # What strangers wrote and aborted is no part of the copy, and readers of uncommitted records get it.
        here, *found_there = map(self._compared, read_together(views[: 2 if self.strangers else 3], names))
        comparisons = [method(here, one) for one in found_there]
        found = next((one for one in comparisons if not one.identical), comparisons[0])
        out.compared.add(found)
        out.problems += found.examples
        if not found.records:
            out.problems.append("nothing was compared: the source holds no record")
        if self.scenario.exact:
            ends = self.destination.ends(names)
            out.problems += compare_ends("the end", self.source.ends(names), ends)
        if self.check_starts:
            starts = self.destination.starts(names)
            out.problems += compare_ends("the start", self.source.starts(names), starts)
        out.halted += self._halted()
        spoilt = {topic for topic, _ in (*self._expected, *self._tolerated, *self._since, *self.strangers)}
        out.audited += [plan.name for plan in self.topics if plan.name not in spoilt]

    def _compared(self, read: Reading) -> Reading:
        """Of what was read, the part that is compared."""
        return {
            name: {at: one for at, one in held.items() if at >= self._since.get(name, 0)} for name, held in read.items()
        }

    def _halted(self) -> list[str]:
        """The reasons of the intended halts, all of which must have come."""
        reasons = []
        for name in self._expected:
            said = [mirror.halted_before[name] for mirror in self.mirrors if name in mirror.halted_before]
            if not said:
                self.outcome.problems.append(f"{name[0]}-{name[1]} did not halt")
            reasons += [halt.reason for halt in said[:1]]
        return reasons

    def await_replicas(self) -> None:
        """Wait until all replicas of the stage's topics are in sync at both sides."""
        names = [plan.name for plan in self.topics]
        for side in self.pair.sides:
            side.await_in_sync(names)

    @property
    def patience_s(self) -> float:
        """How long a wait may take, for acts that wait themselves."""
        return PATIENCE_S
