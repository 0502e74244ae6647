"""The sources of one run with ``offsets: mapped``: what they held, hold, and what a copy of them must be."""

import copy
import random
import re
from typing import NamedTuple

from mirror.offsetmap.compare.looks import REWRITTEN
from mirror.records.header import HEADER_SIZE
from tests.simulation.model.broker import PartitionModel, Stored
from tests.simulation.model.network import Trace
from tests.simulation.source import START_MS, Recipe, SourceLog

TOPICS = ("a", "b")
ELECTIONS = 100
"""Leader epochs that a topic may have; one that is made anew begins with the next hundred."""


_SAID = re.compile(rb"([a-z])['^]* [0-9]+;")


def name_in(records: bytes) -> str:
    """The source that they are of, by what they say."""
    found = _SAID.search(records)
    return (found[1] if found else records[:1]).decode(errors="replace")


def generation(model: PartitionModel) -> int:
    """Which one it is of the topics that have had its name: it stands for the topic's id."""
    return model.epoch // ELECTIONS


class Former(NamedTuple):
    """A log that the source had before, of which nothing was seen that is not in the present one."""

    origin: PartitionModel
    kept: list[Stored]
    taken: list[Stored]
    cleaned: set[int]
    end: int
    """Up to where both are the same; 0: another topic."""


class Taste(NamedTuple):
    """What kind of run it is, beyond a recipe. Shares are per event."""

    equal: bool = False
    """All batches of a source look alike."""
    cleaned_here: float = 0.0
    """The source's cleaner takes a batch."""
    returned_here: float = 0.0
    """Another leader of the source still has what its cleaner took."""
    cleaned_there: float = 0.0
    deleted_here: float = 0.0
    """The same for DeleteRecords and retention."""
    deleted_there: float = 0.0
    recreated: float = 0.0
    """A source topic is deleted and made anew, each once at most."""
    lagging: float = 0.0
    """A source's new leader has all of the log, and for a while shows less of it than the one before did."""
    truncated: float = 0.0
    """A source loses the end of its log in an unclean election. It neither deletes nor cleans then."""
    remade: float = 0.0
    """The destination topic is deleted and made anew, once at most."""
    idle: float = 0.0
    others: float = 0.3
    forgetful: float = 0.0
    """How likely it is that just before an append old producers are forgotten."""
    last_epoch: int = 32_766
    """The coordinator gives other producer ids behind it."""
    blocks: bool = False
    """Its brokers have each a block of producer ids, so that a later one may be lower."""

    @classmethod
    def draw(cls, chance: random.Random) -> "Taste":
        """Any of them."""
        compacted = chance.random() < 0.4
        equal = not compacted and chance.random() < 0.3
        cleaned_here, cleaned_there = (chance.choice([0.0, 0.1, 0.4]) if compacted else 0.0 for _ in range(2))
        deleted_here, deleted_there = (chance.choice([0.0, 0.0, 0.1, 0.3]) for _ in range(2))
        rare = chance.choice(["", "", "", "remade", "truncated", "recreated"])
        return cls(
            equal=equal,
            cleaned_here=0.0 if rare == "truncated" else cleaned_here,
            cleaned_there=cleaned_there,
            deleted_here=0.0 if rare == "truncated" else deleted_here,
            deleted_there=deleted_there,
            recreated=0.1 if rare == "recreated" else 0.0,
            remade=0.1 if rare == "remade" and not equal else 0.0,
            truncated=0.1 if rare == "truncated" and not equal else 0.0,
            idle=chance.choice([0.0, 0.1, 0.3]),
            others=chance.choice([0.0, 0.3, 0.8]),
            forgetful=chance.choice([0.0, 0.1, 0.3]),
            last_epoch=chance.choice([32_766, 32_766, 32_766, 0, 1, 3]),
            blocks=chance.random() < 0.5,
            lagging=chance.choice([0.0, 0.0, 0.1, 0.3]),
        )


class Source(SourceLog):
    """Remembers all that it ever held. ``model``: the topic of now; ``origin``: the one that the copy is of."""

    def __init__(self, name: str, recipe: Recipe, chance: random.Random, trace: Trace, *, equal: bool) -> None:
        super().__init__(recipe, chance)
        self.trace = trace
        self.name = name
        self.equal = equal
        self.origin = self.model
        self.kept: list[Stored] = []
        """Of the topic that the copy is of."""
        self.cleaned: set[int] = set()
        """Base offsets of what its cleaner took."""
        self.taken: list[Stored] = []
        """What its cleaner took and no leader has brought back."""
        self.returned = False
        """Some of it was brought back."""
        self.taken_since = False
        """Its cleaner took something behind that."""
        self.recreated = False
        """It is not the topic any more that was copied."""
        self.truncated = False
        """It has lost what was copied, and the destination has it."""
        self.lost_copies = False
        """The same, or the destination has lost it as well."""
        self.agreed = 0
        """Up to where the log of now is the one that was copied, if it was truncated."""
        self.regrown: list[Stored] = []
        """What it has held, then."""
        self.former: list[Former] = []
        self._elections = 0

    def grow(self, now_ms: int) -> None:
        """One batch more, while there is one."""
        if self.finished:
            return
        before = len(self.model.batches)
        super().grow(now_ms)
        (self.regrown if self.departed else self.kept).extend(self.model.batches[before:])

    @property
    def departed(self) -> bool:
        """The log of now is not the one that was copied."""
        return self.recreated or self.truncated

    def _batch(self, count: int, now_ms: int, producer_id: int, *, records: int | None = None) -> None:
        super()._batch(2 if self.equal else count, now_ms, producer_id, records=records)

    def _stamp(self, now_ms: int) -> int:
        stamp = super()._stamp(now_ms)
        return START_MS if self.equal else stamp

    def _words(self, base: int, count: int) -> bytes:
        made = b"'" * generation(self.model) + b"^" * self._elections
        return b"%s%s" % (self.name.encode(), made) if self.equal else b"%s%s %d;" % (self.name.encode(), made, base)

    def copied(self) -> list[Stored]:
        """What a copy of all that is decided by now consists of, in order."""
        return self._copied(self.origin, self.kept)

    def copied_now(self) -> list[Stored]:
        """The same of the log of now, if it was truncated: that, once nobody has any more what was lost."""
        return self._copied(self.model, self.regrown)

    def _copied(self, log: PartitionModel, kept: list[Stored]) -> list[Stored]:
        """What of these batches is copied."""
        return [
            stored
            for stored in kept
            if stored.header.next_offset <= log.last_stable
            and not stored.header.is_control
            and stored.header.record_count
            and not log.is_aborted(stored.header)
        ]

    def passed_over(self, copied_to: int) -> bool:
        """Whether it has lost what is not copied, right behind the last copy: a position may have been behind that."""
        for former in self.former:
            due = [one.header.base_offset for one in self._copied(former.origin, former.kept)]
            passed_to = min((base for base in due if base >= copied_to), default=former.origin.last_stable)
            if copied_to <= former.end < passed_to:
                return True
        return False

    def clean(self) -> None:
        """The cleaner takes a batch, any but the last ones of those that are decided."""
        model = self.model
        decided = [at for at, stored in enumerate(model.batches) if stored.header.next_offset <= model.last_stable]
        candidates = [at for at in decided[:-2] if not model.batches[at].header.is_control]
        if not candidates:
            return
        stored = model.batches.pop(self._chance.choice(candidates))
        if not self.departed:
            self.cleaned.add(stored.header.base_offset)
            self.taken.append(stored)
            self.taken_since = self.returned
        self.trace("source", "the cleaner takes {} at {}", self.name, stored.header.base_offset)

    def bring_back(self) -> None:
        """Another leader's cleaner has not been there yet."""
        for stored in self.taken:
            if self.model.start <= stored.header.base_offset and not self.departed:
                self.model.batches.insert(self.model.at(stored.header.base_offset), stored)
                self.trace("source", "{} has {} again", self.name, stored.header.base_offset)
            self.returned = True
        self.taken.clear()

    def delete(self, copied_to: int) -> None:
        """Whole batches at the beginning; mostly none that nobody has copied."""
        model = self.model
        if self.equal and not copied_to:
            return  # nobody could say which of them is the first that is copied
        bases = [stored.header.base_offset for stored in model.batches] + [model.last_stable]
        most = model.last_stable if self._chance.random() < 0.1 else min(copied_to, model.last_stable)
        possible = [base for base in bases if model.start < base <= most]
        if possible:
            model.delete_before(self._chance.choice([possible[-1], self._chance.choice(possible)]))
            self.trace("source", "{} begins at {}", self.name, model.start)

    def recreate(self, *, begun: bool) -> PartitionModel:
        """The topic is deleted, and another made under its name. ``begun``: somebody has begun to copy the old one."""
        self.trace("source", "{} is deleted and made anew", self.name)
        self.model = PartitionModel(leader_epoch=(generation(self.model) + 1) * ELECTIONS)
        self._begin_anew()
        self.recreated = self.recreated or begun
        if not self.recreated:
            self.former.append(Former(self.origin, self.kept, self.taken, self.cleaned, 0))
            self.origin, self.kept, self.taken, self.cleaned = self.model, [], [], set()
        return self.model

    def truncate(self, copied_to: int) -> PartitionModel:
        """An unclean election: the log ends before, and goes on with other records. ``copied_to``: of what was copied
        all is below. No transaction was open where it ends."""
        cuts: list[int] = []
        undecided: set[int] = set()
        for stored in self.model.batches if self.departed else self.kept:
            header = stored.header
            if not undecided and header.base_offset >= self.model.start:
                cuts.append(header.base_offset)
            if header.is_transactional:
                (undecided.discard if header.is_control else undecided.add)(header.producer_id)
        if not cuts:
            return self.model
        end = self._chance.choice([cuts[-1], self._chance.choice(cuts[-4:]), self._chance.choice(cuts)])
        self.model = _cut(self.model, end)
        self._elections += 1
        self._begin_anew()
        self.trace("source", "{} ends at {} now, epoch {}", self.name, end, self.model.epoch)
        if self.departed:
            self.regrown, self.agreed = _before(self.regrown, end), min(self.agreed, end)
        elif copied_to > end:
            self._lose(_before(self.kept, end), end)
        else:
            self.former.append(Former(self.origin, self.kept, self.taken, self.cleaned, end))
            self.origin = self.model
            self.kept, self.taken = _before(self.kept, end), _before(self.taken, end)
            self.cleaned = {base for base in self.cleaned if base < end}
        return self.model

    def elect(self) -> int | None:
        """Another leader, with all of the log. The high watermark that it knows; None: there is nothing that it could
        have missed."""
        bases = [one.header.base_offset for one in self.model.batches if one.header.base_offset >= self.model.start]
        if not bases:
            return None
        self.model.epoch += 1
        self.model.epoch_start = self.model.end
        known = self._chance.choice([bases[-1], self._chance.choice(bases[-6:]), self._chance.choice(bases)])
        self.trace("source", "{}: epoch {}, which shows what is before {}", self.name, self.model.epoch, known)
        return known

    def _begin_anew(self) -> None:
        """Nothing is open, and there is more to come."""
        self._open.clear()
        self._left += self._chance.choice([0, 4, 12])

    def go_back(self) -> None:
        """The copy is of the log that was there before the last one."""
        former = self.former.pop()
        if generation(former.origin) != generation(self.origin):
            self.recreated = True
        elif self.truncated:
            self.agreed = former.end
        else:
            self._lose(self.kept, former.end)
        self.origin, self.kept, self.taken, self.cleaned, _ = former

    def _lose(self, regrown: list[Stored], agreed: int) -> None:
        self.truncated = self.lost_copies = True
        self.regrown, self.agreed = regrown, agreed

    def go_on(self) -> None:
        """The destination has lost the same: the copy is of the log of now."""
        self.truncated = False
        self.origin, self.kept = self.model, self.regrown
        self.former.clear()


def _before(batches: list[Stored], end: int) -> list[Stored]:
    return [one for one in batches if one.header.base_offset < end]


def _cut(model: PartitionModel, end: int) -> PartitionModel:
    """What another leader has of the log, up to ``end``."""
    cut = copy.copy(model)
    cut.batches = [stored for stored in model.batches if stored.header.base_offset < end]
    cut.end = cut.replicated = cut.epoch_start = end
    cut.epoch += 1
    cut._open = {}
    cut._aborted = [one for one in model._aborted if one.marker < end]
    return cut


def same(original: Stored, copy: Stored) -> bool:
    """Whether one is the copy of the other, by what is in them."""
    mine, its = original.header, copy.header
    return (
        mine.last_offset_delta == its.last_offset_delta
        and mine.attributes & ~REWRITTEN == its.attributes & ~REWRITTEN
        and original.data[HEADER_SIZE:] == copy.data[HEADER_SIZE:]
    )
