"""``offsets: mapped`` of a source that holds messages of magic 0 and 1 among its batches. All that ``test_mapped``
checks of batches is checked of records.
"""

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import pytest

from mirror.records.admit import Terms
from mirror.records.content.opening import Record
from mirror.records.header import NO_PRODUCER_ID, Codec
from mirror.relay.hot import deep
from tests.legacy.samples import messages_of, wrapper_of
from tests.simulation.mapped.run import play
from tests.simulation.mapped.source import Taste, name_in
from tests.simulation.mapped.test_pieces import UNCLEANED, Rewriting, RichCopies, RichSource, _draw, records_of
from tests.simulation.model.broker import Stored
from tests.simulation.old_messages import old_stored
from tests.simulation.seeds import FIRST, mapped_runs

pytestmark = pytest.mark.long

RUNS = mapped_runs(100)
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


class OldSource(RichSource):
    """Most of what is in no transaction is in an old format. No cleaner works on it: see ``Terms.converts``."""

    def _batch(self, count: int, now_ms: int, producer_id: int, *, records: int | None = None) -> None:
        chance = self._chance
        if producer_id != NO_PRODUCER_ID or chance.random() < 0.2:
            super()._batch(count, now_ms, producer_id, records=records)
            return
        base, stamp, magic = self.model.end, self._stamp(now_ms), chance.choice([0, 1])
        made = [
            Record(at, stamp + at if magic else -1, b"k", self._words(at, 1) * 3, ())
            for at in range(base, base + count + chance.randint(0, 2))
        ]
        codec = chance.choice(CODECS)
        for message in [wrapper_of(magic, codec, made)] if codec else [messages_of(magic, [one]) for one in made]:
            stored = old_stored(message)
            self.model.batches.append(stored)
            self.model.end = self.model.replicated = stored.header.next_offset


class OldCopies(RichCopies):
    """Copies that may be compressed."""

    def _name_of(self, stored: Stored) -> str:
        packed = stored.header.codec_bits
        return name_in(b"".join(one.payload for one in records_of(stored)) if packed else stored.payload)


class Converting(Rewriting):
    """A run with such sources."""

    source_type = OldSource
    copies_type = OldCopies

    def terms(self) -> Terms:
        """See ``MappedRun``. Old messages of a compacted topic are not converted (``pairing.terms_of``)."""
        return replace(super().terms(), converts=True, compacted=False)


def played(seed: int, **changes: float) -> str:
    """Why it halted; see ``run.play``."""
    taste = patch.object(Taste, "draw", lambda chance: _draw(chance)._replace(**UNCLEANED | changes))
    with taste, patch.object(deep, "MOST_PIECES", 2):
        return play(seed, Converting).halted


def test_old_messages_are_there_once() -> None:
    """As ``test_mapped``: the copy becomes complete, unless something was played that has to halt it."""
    Rewriting.opened.clear()
    ends = Counter(played(seed) for seed in range(FIRST, FIRST + RUNS))
    # Three in four of many. Of the few that are played by day, it may be fewer.
    assert ends[""] >= 0.6 * RUNS, ends
    assert all(Rewriting.opened[reason] > RUNS / 4 for reason in ("old_format", "too_large", "mid_batch"))
