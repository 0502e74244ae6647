"""Detects loops: other flows copy what this flow has written, directly or through further clusters, until it comes back
and is copied again.

With ``offsets: mapped``, nothing in the log shows that, since every mirror appends to whatever is there. But each flow
writes down at its destination what it copies before it copies anything (``relay.durable.pins``, checkpoints), and the
destination of the flows that feed this one is our source. So their internal topics are read there: with each look for
topics, and for a partition that was never copied before once more *after* its own first entry was written. Of two
mirrors that begin at the same moment, at least one sees the other's entry.

A flow also writes down what it finds there (``entries.pins.Upstream``): the flows that feed its source, and those that
feed their sources. So each flow passes the way of the records on to the next one, and in a ring of any number of flows
it comes back to each of them.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from mirror.net.admin.names import topic_codes
from mirror.net.errors import Damaged, NetworkError, Unreachable, Unreadable
from mirror.net.metadata import not_described
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import AcceptedLoop, Edge, FlowEntry, Hop, KeptHalt, Note, Pin, Upstream
from mirror.offsetmap.fields import ids_differ
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import PREFIX, UNREADABLE, Memory, passes, state_topic
from mirror.offsetmap.internal.topic import InternalTopic, Shared
from mirror.reasons import GAPS, PAUSED, HaltReason
from mirror.relay.durable.flows import digest_of, digest_of_text
from mirror.relay.durable.rings import ClusterTopic, begin_of, end_of, nearest, newest, on_the_way, way
from mirror.relay.halts import Halted, PartitionHalted
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase

LOOK_EVERY_S = 60.0
"""Interval at which the source's internal topics are read, if it has any. Otherwise they are read only with each look
for topics."""
WATCH_S = 300.0
"""Seconds for which loops are looked for every ``WATCH_EVERY_S``, after an operator has accepted one."""
WATCH_EVERY_S = 1.0
"""Pause between two of these looks. It is also the first pause after a partition has begun, or after the flows that
feed one have changed; it doubles with each look."""
AT_ONCE = 100
"""Number of partitions that are checked before other tasks get their turn."""
_GRANT = f"grant the mirror's principal Read and Describe on topics {PREFIX}* at the source, too"
_ELSE = "otherwise a topic that is mirrored both ways, or in a ring, is copied round without end"
_PROBE = f"{PREFIX}is-there-a-right-to-describe-this"
_SHOWN_FLOW = 200
"""Number of characters of a flow's id that ``by_of`` keeps."""


class _Feed(NamedTuple):
    """A flow that feeds a source topic, as found in its internal topic at the source."""

    state: InternalTopic
    flow: FlowEntry
    subject: Subject
    digest: str
    """Digest of what the flow has written down about the partition."""


class _Ring(NamedTuple):
    """The way on which a partition's records come back."""

    hops: list[Hop]
    """The flows on the way, in the order in which records pass them. The last one writes to the source topic."""
    renamed: bool
    """True if the records come back under another name: then the first hop is this flow itself."""


class Loops:
    """Looks for loops in all partitions of a process. ``state``: this flow's internal topic."""

    def __init__(self, relay: Orchestrator, state: Memory) -> None:
        self._relay = relay
        self._state = state
        self._looks = Shared(self._look_up)
        self._looked = False
        self._there: dict[str, InternalTopic] = {}
        """The internal topics of other flows at the source."""
        self._feeds: dict[tuple[str, int], list[_Feed]] = {}
        """Source topic and partition number -> the flows that feed it."""
        self._begun: set[Subject] = set()
        """Partitions that were never copied before. Each is removed once a look after its first entry has shown no
        loop."""
        self._told: set[str] = set()
        self._watched_until = 0.0
        self._pause_s = LOOK_EVERY_S
        self._hand_on_at = 0.0

    # -- when to look --------------------------------------------------------------------------------------------------

    async def renew(self) -> None:
        """Looks once, halts running partitions whose records come back, and writes down the flows that feed the others.
        If the look fails, the earlier findings remain valid."""
        try:
            await self._looks.run()
        except NetworkError as error:
            self._relay.log.warning("loops_not_looked_for", detail=str(error))
            return
        for at, partition in enumerate(list(self._relay.partitions.values())):
            if at % AT_ONCE == 0:
                await asyncio.sleep(0)
            if _runs(partition) and (found := self._ring(partition)) is not None:
                self._relay.halt(partition, self._halted(partition, found))
        try:
            await self._hand_on(filter(_runs, self._relay.partitions.values()), anew=self._is_time_to_hand_on())
        except NetworkError as error:
            self._relay.log.warning("state_not_written", topic=self._state.topic, detail=str(error))
        with suppress(NetworkError):  # the next look asks again
            await self._check_right()

    def _is_time_to_hand_on(self) -> bool:
        """Returns True if it is time to write down again flows of which only the digests have changed. While looks are
        frequent, not each of them does that."""
        now = asyncio.get_running_loop().time()
        if now < self._hand_on_at:
            return False
        self._hand_on_at = now + LOOK_EVERY_S
        return True

    async def keep(self) -> None:
        """Looks regularly, and often for a while after a change, until cancelled."""
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            await asyncio.sleep(min(LOOK_EVERY_S, WATCH_EVERY_S))
            if loop.time() - looked < self._pause_s and loop.time() >= self._watched_until:
                continue
            looked, pause_s = loop.time(), self._pause_s
            self._pause_s = min(2 * pause_s, LOOK_EVERY_S)
            if self._there or pause_s < LOOK_EVERY_S:
                await self.renew()

    async def before(self, partition: Partition) -> None:
        """Checks the partition before it is located, and writes down the flows that feed it. So a flow that sees this
        partition's first entry sees these flows, too. If the source's internal topics cannot be read now, a partition
        that has already begun is not held up: ``renew`` checks it as soon as they can be read.

        Raises:
            PartitionHalted: its records come back.
            NetworkError: cannot be determined now.
        """
        ledger, subject = self._state.ledger, partition.subject
        begins = ledger.pin(subject) is None and ledger.checkpoint(subject) is None
        if not self._looked:
            try:
                await self._looks.run()
            except NetworkError:
                if begins:
                    raise
                return  # ``renew`` logs the error
        if begins:
            self._begun.add(subject)
        self._check(partition)
        await self._hand_on([partition])

    async def behind(self, partition: Partition) -> None:
        """Checks the partition after its first entry was written and before its first batch is sent.

        Raises:
            PartitionHalted, NetworkError: as ``before``.
        """
        if partition.subject not in self._begun:
            self._check(partition)
            return
        await self._looks.run()
        self._check(partition)
        await self._hand_on([partition])
        self._begun.discard(partition.subject)
        if self._pause_s >= LOOK_EVERY_S:
            self._look_often()  # one series of looks is enough for all partitions that begin at about the same time

    async def resumed(self, partitions: Iterable[Partition], *, accept: bool) -> None:
        """Looks again at partitions that are resumed.

        Args:
            partitions: the partitions.
            accept: True if an operator says that one of the flows of each ring has ended, although nothing shows that.
                Then what these flows have written until now no longer counts. If they all still copy, this flow feeds
                itself, so it looks often from now on.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        halted = [each for each in partitions if each.halted and each.halted.reason == HaltReason.LOOP.slug]
        if not halted:
            return
        await self._looks.run()
        if not accept:
            return
        self._watched_until = asyncio.get_running_loop().time() + WATCH_S
        await self._state.save([entry for each in halted for entry in self._acceptances(each)])

    def _look_often(self) -> None:
        self._pause_s = min(WATCH_EVERY_S, LOOK_EVERY_S)

    # -- what was found ------------------------------------------------------------------------------------------------

    def _check(self, partition: Partition) -> None:
        found = self._ring(partition)
        if found is not None:
            raise PartitionHalted(self._halted(partition, found))

    def _halted(self, partition: Partition, found: _Ring) -> Halted:
        index, here, there = partition.index, self._relay.source, self._relay.destination
        hops = [self._told_of(hop, index) for hop in found.hops]
        ours = (
            f'this flow ("{self._relay.settings.flow}") would copy {partition.name} of {here.name} into '
            f"{partition.destination}-{index} of {there.name}"
        )
        if found.renamed:
            detail = f"records come back under another name: {', then '.join((*hops, ours))}"
            return Halted.of(HaltReason.LOOP_RENAMED, detail)
        if len(hops) == 1:
            return Halted.of(HaltReason.LOOP, hops[0])
        detail = f"a ring of {len(hops) + 1} flows: {', '.join(hops)}, and {ours}"
        return Halted.of(HaltReason.LOOP, detail)

    def _told_of(self, hop: Hop, index: int) -> str:
        flow, source, topic, destination, into = hop.edge
        where = self._shown(destination)
        return (
            f'flow "{flow}" ({state_topic(flow)} at {where}) copies {topic}-{index} of {self._shown(source)} into '
            f"{into}-{index} of {where}"
        )

    def _shown(self, cluster_id: str) -> str:
        """Returns the name of a cluster in this flow's configuration; for other clusters, its id."""
        here, there = self._relay.source, self._relay.destination
        names = {here.cluster_id: here.name, there.cluster_id: there.name}
        return names.get(cluster_id, f"cluster {cluster_id}")

    def _ring(self, partition: Partition) -> _Ring | None:
        """Returns a way on which the partition's records come back, and which no operator has accepted; None if none is
        known."""
        hops = self._hops(partition)
        if not hops:
            return None
        here, there = self._ends(partition)
        # A flow that has copied nothing since an operator accepted it passes nothing on.
        moving = [hop for hop in hops if not self._is_accepted(partition, self._by(partition, hop), hop.digest)]
        if found := way(moving, there, here):
            return _Ring(found, renamed=False)
        for hop in self._ours(partition, hops):
            if not self._is_accepted(partition, *_by_renamed(hop)):
                return _Ring([hop, *way(hops, end_of(hop.edge), here)], renamed=True)
        return None

    def _ours(self, partition: Partition, hops: Iterable[Hop]) -> list[Hop]:
        """Returns the hops that are this flow itself, with other topic names. If names follow a rule, records that pass
        a flow twice pass it again and again."""
        flow, (here, there) = self._relay.settings.flow, self._ends(partition)
        return [
            hop
            for hop in hops
            if (hop.edge.flow, hop.edge.source_cluster, hop.edge.destination_cluster)
            == (flow, here.cluster, there.cluster)
            and begin_of(hop.edge) != here  # otherwise it had another topic.rename before
        ]

    def _ends(self, partition: Partition) -> tuple[ClusterTopic, ClusterTopic]:
        """Returns the source topic and the destination topic of the partition."""
        here, there = self._relay.source.cluster_id, self._relay.destination.cluster_id
        return ClusterTopic(here, partition.topic), ClusterTopic(there, partition.destination)

    def _is_accepted(self, partition: Partition, by: str, digest: str) -> bool:
        accepted = self._state.ledger.accepted_loop(partition.subject, by)
        return accepted is not None and accepted.digest == digest

    def _acceptances(self, partition: Partition) -> list[AcceptedLoop]:
        """Returns the entries that accept all ways on which the partition's records come back, up to what the flows
        have copied by now."""
        subject, hops, (here, there) = partition.subject, self._hops(partition), self._ends(partition)
        accepted = [
            AcceptedLoop(subject=subject, by=self._by(partition, hop), digest=hop.digest)
            for hop in on_the_way(hops, there, here)
        ]
        renamed = [
            AcceptedLoop(subject=subject, by=by, digest=digest)
            for by, digest in map(_by_renamed, self._ours(partition, hops))
        ]
        return accepted + renamed

    def _by(self, partition: Partition, hop: Hop) -> str:
        """Returns the name of a hop in an ``AcceptedLoop``. A flow in the opposite direction is named by its internal
        topic."""
        here, there = self._ends(partition)
        opposite = (begin_of(hop.edge), end_of(hop.edge)) == (there, here)
        return state_topic(hop.edge.flow) if opposite else by_of(hop.edge)

    # -- the flows that feed a partition -------------------------------------------------------------------------------

    def _hops(self, partition: Partition) -> tuple[Hop, ...]:
        """Returns the flows that feed the partition, and the flows that feed their sources, as far as they are written
        down."""
        feeds = self._feeds.get((partition.topic, partition.index))
        if not feeds:
            return ()
        here, _ = self._ends(partition)
        known = self._state.ledger.upstream(partition.subject)
        before = {hop.edge: hop for hop in known.hops} if known is not None else {}
        hops: list[Hop] = []
        for feed in feeds:
            if self._stands(feed, partition):
                continue
            edge = Edge(feed.flow.flow, feed.flow.source_cluster, feed.subject.topic, here.cluster, here.topic)
            seen, digest = before.get(edge), self._digest(feed, partition)
            hops.append(seen if seen is not None and seen.digest == digest else Hop(edge, digest, _now_ms()))
            further = feed.state.ledger.upstream(feed.subject)
            if further is not None:
                # Flows that write to our source are read there. What other flows say about them may be about flows that
                # are gone.
                hops += [hop for hop in further.hops if hop.edge.destination_cluster != here.cluster]
        return nearest(newest(hops), here)

    def _digest(self, feed: _Feed, partition: Partition) -> str:
        """Returns the digest of what a flow has written down. If this partition leads back what that flow copied
        (``Pin.adopted``), the digest covers only entries which show that the flow has continued since."""
        pin = self._state.ledger.pin(partition.subject)
        if pin is None or not pin.adopted or feed.subject != _turned(partition.subject):
            return feed.digest
        return trace(feed.state.ledger, feed.flow, feed.subject, upto=pin.adopted)

    async def _hand_on(self, partitions: Iterable[Partition], *, anew: bool = False) -> None:
        """Writes down the flows that feed these partitions, where they have changed.

        Args:
            partitions: the partitions.
            anew: True to write also where the flows are the same and only their digests have changed.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        ledger = self._state.ledger
        changed: list[Upstream] = []
        forget: list[bytes] = []
        for partition in partitions:
            hops, known = self._hops(partition), ledger.upstream(partition.subject)
            before = known.hops if known is not None else ()
            if [hop.edge for hop in hops] != [hop.edge for hop in before]:
                self._look_often()  # more changes may follow
            elif hops == before or not anew:
                continue
            if hops:
                changed.append(Upstream(subject=partition.subject, hops=hops, at_ms=_now_ms()))
            elif known is not None:
                forget.append(known.key())
        if len(changed) == 1 and not forget:
            await self._state.put(changed[0])  # ``put`` writes it together with the entries of other calls
        elif changed or forget:
            await self._state.save(changed, forget=forget)

    def _stands(self, feed: _Feed, partition: Partition) -> bool:
        """Returns True if the partition of a flow that feeds this one has halted for good, with the current topics."""
        ledger, subject = feed.state.ledger, feed.subject
        halted = ledger.halt(subject)
        if halted is None or halted.reason in GAPS or halted.reason == PAUSED:
            return False
        source_id, destination_id = self._relay.pins.ids(partition)
        if ids_differ(halted.destination_id, source_id):
            return False
        if ClusterTopic(feed.flow.source_cluster, subject.topic) == self._ends(partition)[1]:
            return not ids_differ(halted.source_id, destination_id)
        # We cannot see the id of its source topic. If it has begun with another source topic since, it has written that
        # down.
        accounts = (ledger.pin(subject), ledger.checkpoint(subject))
        return not any(ids_differ(each.source_id, halted.source_id) for each in accounts if each is not None)

    # -- the source's internal topics ----------------------------------------------------------------------------------

    async def _look_up(self) -> None:
        relay = self._relay
        if relay.source.cluster_id and relay.destination.cluster_id:
            codes = await topic_codes(relay.source)
            found = {name: code for name, code in codes.items() if name.startswith(PREFIX)}
            for name in self._there.keys() - found.keys():
                del self._there[name]
            for name, code in found.items():
                if code:
                    raise Unreachable(f"cluster {relay.source.name}: {name} has no leader at present")
                await self._read(name)
            self._feeds = await self._index()
        self._looked = True

    async def _check_right(self) -> None:
        """Logs if topics with the prefix of internal topics may not be described; once, until they may be. A list of
        all topics omits topics that may not be described. Brokers say that a topic does not exist only to clients that
        may describe it."""
        source = self._relay.source
        await source.check_denied([_PROBE])
        if _PROBE not in source.denied:
            self._told.discard(_PROBE)
        elif _PROBE not in self._told:
            self._told.add(_PROBE)
            error = not_described(source.name, f"{PREFIX}*")
            self._relay.log.warning("loops_not_seen", detail=str(error), remedy=f"{_GRANT}; {_ELSE}")

    async def _index(self) -> dict[tuple[str, int], list[_Feed]]:
        found: dict[tuple[str, int], list[_Feed]] = {}
        for _, state in sorted(self._there.items()):
            flows = [
                flow
                for flow in state.ledger.flows
                if flow.source_cluster and flow.destination_cluster in ("", self._relay.source.cluster_id)
            ]
            for at, subject in enumerate(sorted(state.ledger.known)):
                if at % AT_ONCE == 0:
                    await asyncio.sleep(0)
                for flow in flows:
                    if digest := trace(state.ledger, flow, subject):
                        found.setdefault((subject.destination, subject.partition), []).append(
                            _Feed(state, flow, subject, digest)
                        )
        return found

    def _concerns(self, entry: Entry) -> bool:
        """Returns True if an entry of another flow's internal topic is needed here, and so is kept in memory."""
        if isinstance(entry, Pin | Checkpoint | Note | KeptHalt | Upstream):
            return self._relay.settings.selects(entry.subject.destination)
        return isinstance(entry, FlowEntry)

    async def _read(self, name: str) -> None:
        """Reads what is new in one of the internal topics."""
        state = self._there.get(name) or InternalTopic(
            self._relay.source, "", topic=name, lean=True, only=self._concerns
        )
        try:
            if name in self._there:
                await state.load()
            elif not await state.open(create=False):
                return
        except UNREADABLE as error:
            if passes(error):
                raise
            self._there.pop(name, None)
            if name not in self._told:
                self._told.add(name)
                self._relay.log.warning(
                    "loops_not_seen",
                    detail=f"{name} at {self._relay.source.name} cannot be read: {error}",
                    remedy=f"{_remedy(error, name)}; {_ELSE}",
                )
            return
        self._told.discard(name)
        self._there[name] = state


def _runs(partition: Partition) -> bool:
    return partition.phase in (Phase.ACTIVE, Phase.DOUBT)


def trace(ledger: Ledger, flow: FlowEntry, subject: Subject, *, upto: int = 0) -> str:
    """Returns the digest of what a flow has written down about a partition; empty if it has copied nothing of it.

    Args:
        ledger: the content of the flow's internal topic.
        flow: the flow.
        subject: the partition.
        upto: notes that name this source offset or a lower one are left out. They do not show that a flow which has
            ended there has continued: it writes its last note up to a minute later, also when it is paused.
    """
    pin, checkpoint = ledger.pin(subject), ledger.checkpoint(subject)
    if pin is not None and pin.source_cluster not in ("", flow.source_cluster):
        pin = None
    if pin is None and checkpoint is None:
        return ""
    notes = [note for note in ledger.notes(subject) if note.copied.offset > upto] if pin is not None else []
    return digest_of([pin, checkpoint, *notes])


def _turned(subject: Subject) -> Subject:
    """Returns the subject of the same partition in a flow in the opposite direction."""
    return Subject(subject.destination, subject.partition, subject.topic)


def by_of(edge: Edge) -> str:
    """Returns the name of an edge in an ``AcceptedLoop``."""
    return f"{edge.flow[:_SHOWN_FLOW]} {digest_of_text(repr(tuple(edge)))}"


def _by_renamed(hop: Hop) -> tuple[str, str]:
    """Returns the name and the digest for the ``AcceptedLoop`` of records that pass this flow twice. The flows do not
    end here: what the operator accepts is that this topic is copied once more, under one more name. So the digest is of
    the edge only."""
    return f"{by_of(hop.edge)} renamed", digest_of_text(repr(tuple(hop.edge)))


def _remedy(error: NetworkError, name: str) -> str:
    if isinstance(error, Damaged | Unreadable):
        return f"see that broker's disk; if the flow of {name} is not used any more, delete that topic"
    return _GRANT


def _now_ms() -> int:
    return round(time.time() * 1000)
