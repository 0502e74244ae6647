"""What of a partition was replicated, where answers are missing."""

from mirror.relay.partition.tally import Counts, Tally


def located(offset: int, *, holes_from: int | None = None) -> Tally:
    tally = Tally()
    assert tally.located(offset, 0, offset if holes_from is None else holes_from) == 0
    return tally


def counts(tally: Tally, acknowledged: int, filled: int = 0) -> Counts:
    return tally.counts(acknowledged, filled, ())


def test_where_it_begins() -> None:
    """There, nothing was replicated yet; it stays that of the first time."""
    assert Tally().origin is None
    tally = located(100, holes_from=90)
    assert tally.origin is not None
    assert tally.origin[:2] == (100, 90)
    tally.dropped(120, (), ())
    tally.located(130, 0, 130)
    assert tally.origin[:2] == (100, 90)
    assert counts(tally, 130).records == 30


def test_markers_without_an_answer() -> None:
    """What is found behind the last position known is data or markers: markers are filled offsets, no records."""
    tally = located(100)
    tally.dropped(110, (), ())
    filled = tally.located(118, 0, 113)
    assert filled == 5
    assert counts(tally, 118, filled).records == 13
    tally.dropped(118, (), ())
    assert tally.located(120, filled, 100) == 2, "markers before that position were counted then"


def test_the_destination_lost_some() -> None:
    """What is copied again counts again."""
    tally = located(100)
    tally.dropped(120, (), ())
    assert tally.located(115, 0, 115) == 0
    assert counts(tally, 120).records == 25
