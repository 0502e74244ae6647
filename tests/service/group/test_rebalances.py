"""When a group's client has to be replaced."""

from mirror.service.group.rebalances import MOST_IN_A_ROW, REST_S, Rebalances


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_assignment_follows_each_revocation_at_the_same_seat() -> None:
    """Generation 3 revokes and then assigns; the next one assigns once more."""
    rebalances = Rebalances()
    rebalances.assigned(b"2")
    rebalances.revoked(b"3", follows=True)
    rebalances.assigned(b"3")
    rebalances.assigned(b"4")
    assert rebalances.unfinished == ""


def test_a_rebalance_that_is_given_up() -> None:
    """Generation 3 revokes, and the next assignment is of generation 4."""
    rebalances = Rebalances()
    rebalances.revoked(b"3", follows=True)
    rebalances.assigned(b"4")
    assert "while revoked partitions were drained" in rebalances.unfinished


def test_nothing_follows_a_revocation_of_its_own_or_a_lost_seat() -> None:
    rebalances = Rebalances()
    rebalances.revoked(b"3", follows=False)
    rebalances.assigned(b"4")
    rebalances.revoked(b"4", follows=True)
    rebalances.lost()
    rebalances.assigned(b"5")
    assert rebalances.unfinished == ""


def test_a_client_that_goes_round_in_circles_after_its_topics_changed() -> None:
    """
    1. Many rebalances in a row before any change of the topics: others come and go.
    2. After a change, with a rest among them: the change was taken.
    3. After another one, without a rest: it is not taken.
    """
    clock = Clock()
    rebalances = Rebalances(clock)

    def some(count: int, pause_s: float = 1.0) -> None:
        for _ in range(count):
            clock.now += pause_s
            rebalances.assigned(b"")

    some(2 * MOST_IN_A_ROW)
    rebalances.resubscribed()
    some(MOST_IN_A_ROW - 1)
    clock.now += REST_S
    some(2 * MOST_IN_A_ROW)
    assert rebalances.unfinished == ""
    rebalances.resubscribed()
    some(MOST_IN_A_ROW - 1)
    assert rebalances.unfinished == ""
    some(1)
    assert "has not rested" in rebalances.unfinished
