"""Takes a partition over (``offsets: mapped``): decides whom to fence, in which order, and which accounts count then.

``relay.mapped.fence`` writes the single fences. A try that gets no further leaves what it has seen to the next one.
"""

from mirror.net.coordinator import Ownership
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import Memory
from mirror.relay.events import EventLog
from mirror.relay.locate.owners import Owners
from mirror.relay.mapped.fence import Before, Looking, fence, fence_others, look_before, note, noted, others
from mirror.relay.outcome import NotOurs
from mirror.relay.partition.partition import Partition


class Takeover:
    """One try to take one partition over."""

    def __init__(
        self, owners: Owners, state: Memory, partition: Partition, there: PartitionLog, computed: int, log: EventLog
    ) -> None:
        """
        Args:
            owners: asks the transaction coordinator.
            state: the internal topic.
            partition: the partition.
            there: the destination's log.
            computed: the producer id that the partition has where transactional ids are not available.
            log: gets events.
        """
        self._owners = owners
        self._state = state
        self._partition = partition
        self._there = there
        self._computed = computed
        self._log = log
        self.accounts = Ledger()
        """The accounts of the partition, as of when it was certainly ours. Later ones may be a later owner's, because
        other partitions of this process go on reading the internal topic. An account of ours must not supersede such an
        account."""

    async def fence(self) -> tuple[Before, bool]:
        """Takes the partition over and fences its predecessors, so that what they may still send is refused. The
        internal topic is read behind the fence.

        Returns:
            What is known of the producers, and whether all predecessors are fenced.

        Raises:
            NotOurs: another worker has taken the partition over.
            NetworkError: it is not certain that the fences are there.
        """
        state, partition, there = self._state, self._partition, self._there
        owner = await self._owners.take_over(partition)
        # The fence changes what the leader remembers. An earlier try that failed after its fence had asked before it.
        now = await look_before(there, self._log)
        before = now.after(partition.claim.before)
        if owner is not None:
            before = await noted(state, partition.subject, before, there, end=now.end)
        else:
            await state.load()
        # Any worker that took the partition over before us, and has sent anything, is in the internal topic by now.
        before = self._keep(before.of(self._own(owner)))
        after = await self._fence_own(before)
        fenced, complete = after is not None, after is not None and after.complete
        before = self._keep(after or before)
        await state.load()
        ours = owner.producer_id if owner is not None and fenced else self._computed
        old = others(state.ledger.checkpoints(partition.subject), ours)
        if old:
            # An id may be the next owner's instead. Fencing it would make the leader forget what that owner has
            # written.
            await self._check_owner()
            # These markers make the leader forget as well, and an account may have been written since the last note.
            await note(state, partition.subject, before)
            after = await fence_others(there, before, old, self._looking(owner), self._log)
            fenced = fenced and after is not None
            complete = complete and after is not None and (after.complete or after is before)
            before = self._keep(after or before)
            await state.load()
        before = self._keep(before, complete=fenced and complete)
        self.accounts = state.ledger.of(partition.subject)
        if not await self._owners.owns(partition) or self._is_fenced(owner):
            # The accounts loaded may be another owner's by now; an account of ours would supersede them.
            raise NotOurs(self._partition.name)
        if before.complete:
            await note(state, partition.subject, before)
        return before, fenced

    async def _fence_own(self, before: Before) -> Before | None:
        """Fences any worker that had the producer id that the coordinator has for the partition. Returns None if that
        is not possible; see ``relay.mapped.fence.fence``."""
        owner = self._partition.claim.ownership
        if owner is None:
            return None
        name = self._owners.name_of(self._partition)
        after = await fence(self._owners.coordinator, name, owner, self._there, before, self._looking(owner))
        if after is None:
            self._partition.claim.own(None)
        return after

    def _own(self, owner: Ownership | None) -> set[int]:
        """Returns the producer ids under which the partition was ever written, or may be written by us."""
        ours = {owner.producer_id} if owner is not None else set()
        return {self._computed, *ours, *self._state.ledger.own(self._partition.subject)}

    def _looking(self, owner: Ownership | None) -> Looking:
        return Looking(self._own(owner), self._keep)

    def _keep(self, before: Before, *, complete: bool = False) -> Before:
        """Keeps ``before`` for the next try, in case this one gets no further. It is complete only behind the fences of
        all predecessors: until its marker is there, a predecessor with another producer id may write on."""
        kept = before._replace(complete=complete)
        self._partition.claim.remember_before(kept)
        return kept

    async def confirm(self) -> None:
        """Checks, after our account was written, that the partition is still ours. A worker that takes over from here
        on finds the account, and fences our producer id even if the coordinator gives out another one. A worker that
        took over before this has fenced nothing of ours, and may not have seen our account. Then the account is not
        confirmed, and does not count.

        Raises:
            NotOurs: another worker has taken the partition over.
        """
        await self._check_owner()

    async def _check_owner(self) -> None:
        if not await self._owners.owns(self._partition):
            raise NotOurs(self._partition.name)

    def _is_fenced(self, owner: Ownership | None) -> bool:
        """Returns True if an account shows a later owner. Brokers before 3.0 do not report one."""
        accounts = self._state.ledger.checkpoints(self._partition.subject)
        known = [Ownership(one.identity.producer_id, one.identity.epoch) for one in accounts]
        return owner is not None and any(one.producer_id == owner.producer_id and one > owner for one in known)
