"""Three real clusters, and flows from one to the next that make a ring, a chain, or a chain of names."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import Hop
from mirror.offsetmap.internal.memory import state_topic
from mirror.relay.durable import loops
from mirror.relay.durable.loops import Loops
from mirror.sandbox import SandboxCluster
from tests.fakes.loop import some_turns, until
from tests.net.stage.real import create, log_of, records
from tests.patience import PATIENT
from tests.relay.stage.mapping import MappedFlow, mapping, payloads
from tests.service.stage.kafka_side import delete_topic

pytestmark = pytest.mark.broker

WRITTEN = 12
Clusters = tuple[SandboxCluster, SandboxCluster, SandboxCluster]


@pytest.fixture(scope="module")
def third_cluster() -> Iterator[SandboxCluster]:
    with SandboxCluster(name="third", properties=PATIENT, quick=True) as cluster:
        yield cluster


@pytest.fixture
def three(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, third_cluster: SandboxCluster
) -> Clusters:
    return source_cluster, destination_cluster, third_cluster


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The regular looks, of seconds instead of a minute."""
    monkeypatch.setattr(loops, "LOOK_EVERY_S", 0.4)
    monkeypatch.setattr(loops, "WATCH_EVERY_S", 0.2)


class Ring:
    """Flow ``n`` copies from cluster ``n`` into the next; ``names``: its topic at each of the clusters."""

    def __init__(self, three: Clusters, stack: AsyncExitStack, *names: str, mapped: bool = True) -> None:
        self._three = three
        self._stack = stack
        self._mapped = mapped
        self.names = names * 3 if len(names) == 1 else names
        self.flows: dict[int, MappedFlow] = {}
        for sandbox, name in zip(three, self.names, strict=True):
            create(sandbox, name)

    def flow_id(self, at: int) -> str:
        return f"flow-{at}-{self.names[0]}"

    async def start(self, at: int) -> MappedFlow:
        """Flow ``at`` begins."""
        topic, into = self.names[at], self.names[(at + 1) % 3]
        self.flows[at] = await self._stack.enter_async_context(
            mapping(
                self._three[at], self._three[(at + 1) % 3], topic, into={topic: into}, mapped=self._mapped,
                flow=self.flow_id(at), checkpoint_interval_ms=200, refresh_topics_interval_ms=500,
            )
        )  # fmt: skip
        return self.flows[at]

    async def stop(self, at: int) -> str:
        """Flow ``at`` ends, and writes down what it has copied: returns the digest of that."""
        relay = self.flows.pop(at).relay
        assert await relay.drain()
        await relay.close()
        ledger = relay.durable.state.ledger
        return loops.trace(ledger, ledger.flows[0], Subject(self.names[at], 0, self.names[(at + 1) % 3]))

    def write(self, at: int) -> None:
        """Some records into cluster ``at``."""
        records(self._three[at], self.names[at], [f"record {number}" for number in range(WRITTEN)])

    async def copied(self, at: int) -> None:
        await self.flows[at].copied(self.names[at])

    async def halted(self, at: int) -> str:
        return await self.flows[at].halted(self.names[at])

    async def count(self, at: int) -> int:
        """Records of the topic at cluster ``at``."""
        flow = self.flows.get(at)
        cluster = flow.source if flow is not None else self.flows[(at - 1) % 3].destination
        return sum(content.length for _, content in (await payloads(await log_of(cluster, self.names[at]))).values())

    def detail(self, at: int) -> str:
        return str(self.flows[at].log.of("halted")[-1]["detail"])

    def hops(self, at: int) -> tuple[Hop, ...]:
        """The flows of which flow ``at`` has written down that they feed its source."""
        found = self.flows[at].relay.durable.state.ledger.upstream(Subject(self.names[at], 0, self.names[(at + 1) % 3]))
        return found.hops if found is not None else ()

    def handed_on(self, at: int) -> set[str]:
        """The names of these flows."""
        return {hop.edge.flow for hop in self.hops(at)}

    def digests(self, at: int) -> set[str]:
        """The digests of what these flows have copied."""
        return {hop.digest for hop in self.hops(at)}

    async def knows(self, at: int, *others: int) -> None:
        wanted = {self.flow_id(other) for other in others}
        await until(lambda: self.handed_on(at) == wanted, what=f"{at} hands on {wanted}")


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_the_last_of_a_ring_halts_before_its_first_byte(
    three: Clusters, topic_name: str, order: tuple[int, int, int], *, mapped: bool
) -> None:
    """
    1. Two of three flows run, and have handed on what they know; the third one closes the ring. It halts, names every
       hop, and writes nothing.
    2. The others go on, and nothing comes back.
    """
    last = order[2]
    behind, ahead = (last + 1) % 3, (last - 1) % 3
    async with AsyncExitStack() as stack:
        ring = Ring(three, stack, topic_name, mapped=mapped)
        ring.write(behind)
        for at in order[:2]:
            await ring.start(at)
        for at in (behind, ahead):
            await ring.copied(at)
        await ring.knows(ahead, behind)
        await ring.start(last)
        assert await ring.halted(last) == "loop"
        assert [ring.flow_id(at) in ring.detail(last) for at in range(3)] == [True] * 3
        assert ring.detail(last).startswith("a ring of 3 flows: ")
        assert await ring.count(behind) == WRITTEN
        ring.write(behind)
        for at in (behind, ahead):
            await ring.copied(at)
            assert not ring.flows[at].log.of("halted")
        assert [await ring.count(at) for at in range(3)] == [2 * WRITTEN] * 3


async def test_three_that_begin_at_once(three: Clusters, topic_name: str) -> None:
    """
    1. All flows of a ring begin at the same moment: at least one halts, and from then on nothing goes round.
    2. What had gone round by then is some rounds, not many: the flows look often behind a beginning.
    """
    async with AsyncExitStack() as stack:
        ring = Ring(three, stack, topic_name)
        ring.write(0)
        await asyncio.gather(*(ring.start(at) for at in range(3)))

        def halted() -> list[int]:
            return [at for at, flow in ring.flows.items() if flow.relay.halted]

        await until(halted, what="a halt")
        for at in range(3):
            for halt in ring.flows[at].log.of("halted"):
                assert halt["reason"] == "loop"
        counts: list[int] = []
        while (
            True
        ):  # what one flow has copied may be on its way to the next: it takes some looks until all stands still
            await until(lambda: all(flow.relay.halted or flow.relay.lag_records == 0 for flow in ring.flows.values()))
            await some_turns(20)
            before, counts = counts, [await ring.count(at) for at in range(3)]
            if counts == before:
                break


async def test_the_edge_that_appears_later(three: Clusters, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Two flows of a ring run. The third one does not look (an earlier version): it begins, and records go round.
    2. The others see its edge at their next looks: one of them halts, and it is over.
    """
    async with AsyncExitStack() as stack:
        ring = Ring(three, stack, topic_name)
        ring.write(0)
        for at in (0, 1):
            await ring.start(at)
            await ring.copied(at)
        with monkeypatch.context() as patched:
            patched.setattr(Loops, "_look_up", _nothing)
            await ring.start(2)
            await until(lambda: any(ring.flows[at].relay.halted for at in (0, 1)), what="a halt")
        at = next(at for at in (0, 1) if ring.flows[at].relay.halted)
        assert await ring.halted(at) == "loop"
        # The one that does not look hands on nothing, so the ring is named by the flow that sees both of the others.
        assert "a ring of 3 flows" in ring.detail(at)


async def _nothing(self: Loops) -> None:
    self._looked = True


@pytest.mark.parametrize("mapped", [True, False])
async def test_a_chain_is_none(three: Clusters, topic_name: str, *, mapped: bool) -> None:
    """From the first cluster to the third: all is copied, whichever begins first, and nothing halts."""
    async with AsyncExitStack() as stack:
        ring = Ring(three, stack, topic_name, mapped=mapped)
        ring.write(0)
        for at in (1, 0):
            await ring.start(at)
        await ring.copied(0)
        await ring.copied(1)
        await ring.knows(1, 0)
        ring.write(0)
        await ring.copied(0)
        await until(lambda: ring.flows[1].relay.partitions[topic_name, 0].queue.acknowledged >= 2 * WRITTEN)
        assert [await ring.count(at) for at in range(3)] == [2 * WRITTEN] * 3
        for flow in ring.flows.values():
            # Internal topics of other tests may go while they are looked at: each has its test's topic in its name.
            warned = [line for line in flow.log.lines if line.level == "warning"]
            assert not [
                line for line in warned if line.event != "loops_not_seen" or topic_name in str(line.fields["detail"])
            ]


async def test_a_ring_through_other_names(three: Clusters, topic_name: str) -> None:
    """The topic has another name at each cluster, and comes back to its own."""
    async with AsyncExitStack() as stack:
        ring = Ring(three, stack, topic_name, f"{topic_name}.b", f"{topic_name}.c")
        ring.write(0)
        for at in (0, 1):
            await ring.start(at)
            await ring.copied(at)
        await ring.knows(1, 0)
        await ring.start(2)
        assert await ring.halted(2) == "loop"
        assert f"{topic_name}.b-0 of " in ring.detail(2)
        assert await ring.count(0) == WRITTEN


async def test_a_chain_of_names(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. Two flows of opposite directions put a prefix before each name: ``a.t``, ``b.a.t``.
    2. The first one takes up what it finds, and does not copy that into ``a.b.a.t``; the rest goes on.
    """
    a, b = source_cluster, destination_cluster
    names = [topic_name, f"a.{topic_name}", f"b.a.{topic_name}", f"a.b.a.{topic_name}"]
    into, flow = dict(itertools.pairwise(names)), f"there-{topic_name}"
    for sandbox, name in zip((a, b, a, b), names, strict=True):
        create(sandbox, name)
    records(a, names[0], ["one"])
    async with mapping(b, a, names[1], into=into, flow=f"back-{names[0]}") as back:
        async with mapping(a, b, names[0], into=into, flow=flow) as there:
            await there.copied(names[0])
            await until(lambda: back.relay.durable.state.ledger.upstream(Subject(names[1], 0, names[2])))
            await back.copied(names[1])
        async with mapping(a, b, names[0], names[2], into=into, flow=flow) as there:
            assert await there.halted(names[2]) == "loop"
            detail = str(there.log.of("halted")[-1]["detail"])
            assert detail.startswith("records come back under another name: ")
            assert all(f"{name}-0 of " in detail for name in names)
            assert await (await log_of(there.destination, names[3])).visible_end() == 0
            records(a, names[0], ["another"])
            await there.copied(names[0])
            await back.copied(names[1])
            assert not back.log.of("halted")


async def test_accepted_and_alive_again(three: Clusters, topic_name: str) -> None:
    """
    1. The first flow has ended. Nothing shows that, so the third one halts; an operator accepts it, and all goes on.
    2. The first one begins again: the third one halts before long.
    """
    async with AsyncExitStack() as stack:
        ring = Ring(three, stack, topic_name)
        ring.write(0)
        for at in (0, 1):
            await ring.start(at)
            await ring.copied(at)
        last = await ring.stop(0)
        # What it wrote down at its end would halt the third one once more, if that came behind the acceptance.
        await until(lambda: ring.digests(1) == {last}, what="the first flow's last word is handed on")
        await ring.start(2)
        assert await ring.halted(2) == "loop"
        assert await ring.flows[2].relay.resume((topic_name, 0)) == ""
        await until(lambda: len(ring.flows[2].log.of("halted")) == 2)
        assert await ring.flows[2].relay.resume((topic_name, 0), accept_unproven=True) == ""
        ring.write(1)
        await ring.copied(1)
        await until(lambda: ring.flows[2].relay.partitions[topic_name, 0].queue.acknowledged >= 2 * WRITTEN)
        await until(lambda: ring.flows[2].relay.lag_records == 0)
        assert await ring.count(0) == 3 * WRITTEN
        await some_turns(20)
        assert len(ring.flows[2].log.of("halted")) == 2
        await ring.start(0)
        await until(lambda: any(flow.relay.halted for flow in ring.flows.values()), what="a halt")
        for flow in ring.flows.values():
            assert {halt["reason"] for halt in flow.log.of("halted")} <= {"loop"}


async def test_a_flow_that_is_removed(three: Clusters, topic_name: str) -> None:
    """Its internal topic is deleted: the flow behind it hands it on no more, and a plain resume goes on."""
    async with AsyncExitStack() as stack:
        ring = Ring(three, stack, topic_name)
        ring.write(0)
        for at in (0, 1):
            await ring.start(at)
            await ring.copied(at)
        await ring.knows(1, 0)
        await ring.start(2)
        assert await ring.halted(2) == "loop"
        await ring.stop(0)
        await asyncio.to_thread(delete_topic, three[1].bootstrap_servers, state_topic(ring.flow_id(0)))
        await until(lambda: ring.handed_on(1) == set(), what="it is forgotten")
        assert await ring.flows[2].relay.resume((topic_name, 0)) == ""
        await until(lambda: ring.flows[2].relay.partitions[topic_name, 0].queue.acknowledged >= WRITTEN)
        assert await ring.count(0) == 2 * WRITTEN
