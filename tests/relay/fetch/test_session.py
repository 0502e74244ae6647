"""What a request has to say in a fetch session (KIP-227), and what it forgets."""

from mirror.relay.fetch.session import LAST_EPOCH, FetchSession
from mirror.wire.fetch import FetchPartition


def entry(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition("t", partition, offset, 1 << 20)


def begun(*entries: FetchPartition) -> FetchSession:
    """A session that the broker keeps as number 7."""
    session = FetchSession()
    assert session.next(entries, []) == ((0, 0), list(entries), [])
    session.answered(7)
    return session


def test_only_what_has_changed_is_named() -> None:
    session = begun(entry(0), entry(1))
    assert session.incremental
    assert session.next([entry(0), entry(1, 5)], []) == ((7, 1), [entry(1, 5)], [])
    session.answered(7)
    assert session.next([entry(1, 5), entry(2)], []) == ((7, 2), [entry(2)], [])
    assert session.knows(("t", 1), 5)
    assert not session.knows(("t", 1), 6)


def test_those_that_left_are_forgotten_once() -> None:
    """One that left and came back is not: a broker takes the new entries first, and would forget it then."""
    session = begun(entry(0), entry(1))
    assert session.next([entry(1)], [("t", 0), ("t", 1), ("t", 2)]) == ((7, 1), [], [("t", 0)])
    assert not session.knows(("t", 0), 0)
    session.answered(7)
    assert session.next([], [("t", 0)]) == ((7, 2), [], [])


def test_a_broker_that_keeps_no_session() -> None:
    session = FetchSession()
    for _ in range(2):
        assert session.next([entry(0)], [("t", 1)]) == ((0, 0), [entry(0)], [])
        session.answered(0)
        assert not session.incremental


def test_after_a_reset_everything_is_named() -> None:
    """In place of the old session, whose id is named once more; after another connection it is not."""
    session = begun(entry(0))
    session.reset()
    assert not session.incremental
    assert session.next([entry(0)], [("t", 1)]) == ((7, 0), [entry(0)], [])
    session.answered(8)
    session.forget()
    assert session.next([entry(0)], []) == ((0, 0), [entry(0)], [])


def test_epochs_begin_again_at_1() -> None:
    """0 would begin another session."""
    session = begun(entry(0))
    session._epoch = LAST_EPOCH
    assert session.next([], []).session == (7, LAST_EPOCH)
    session.answered(7)
    assert session.next([], []).session == (7, 1)
