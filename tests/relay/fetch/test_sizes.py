"""How many bytes of a backlog are under way, by the measured times."""

from mirror.net.buffers import OVERHEAD, FramePool
from mirror.relay.fetch.sizes import LEAST_FETCH, LONG_S, MOST_DEPTH, SAMPLES, Sizes
from tests.relay.stage.flows import settings

MIB = 1 << 20
FAR_S, NEAR_S = 0.2, 0.001
SPARED = LEAST_FETCH + OVERHEAD
"""Left to fresh data."""


def sizes(**changes: int) -> tuple[Sizes, FramePool]:
    usual = {
        "fetch_max_bytes": 8 * MIB, "max_partition_fetch_bytes": MIB, "buffer_memory": 18 * MIB,
        "most_fetch_bytes": 32 * MIB, "most_partition_fetch_bytes": 32 * MIB, "most_buffer_memory": 96 * MIB,
    }  # fmt: skip
    made = settings(**(usual | changes))
    pool = FramePool(
        budget=made.buffer_memory, frame_size=made.most_fetch_bytes + OVERHEAD, most_budget=made.most_buffer_memory
    )
    return Sizes(made, pool), pool


def hear(of: Sizes, wait_s: float, transfer_s: float, *, others: bool, answers: int = 100) -> None:
    for _ in range(answers):
        of.answered(wait_s, transfer_s, others=others)


def test_near_a_broker_nothing_grows() -> None:
    of, pool = sizes()
    hear(of, LONG_S * 0.9, 0.0, others=True)
    hear(of, 0.05, 0.06, others=True)
    assert (of.depth, of.most_bytes, of.most_partition_bytes) == (1, 8 * MIB, MIB)
    assert pool.budget == 18 * MIB


def test_one_quick_answer_is_enough_to_tell_that_it_is_near() -> None:
    of, _ = sizes()
    for _ in range(50):
        hear(of, FAR_S, 0.01, others=True, answers=SAMPLES - 1)
        hear(of, NEAR_S, 0.01, others=True, answers=1)
    assert of.depth == 1


def test_several_partitions_are_fetched_side_by_side() -> None:
    """Until the transfers of all of them take as long as the wait."""
    of, pool = sizes()
    hear(of, FAR_S, 0.08, others=True)
    assert (of.depth, of.most_bytes) == (3, 8 * MIB)
    assert pool.budget == 4 * (8 * MIB + OVERHEAD) + SPARED
    hear(of, FAR_S, 0.03, others=True, answers=SAMPLES)
    assert (of.depth, of.most_bytes) == (MOST_DEPTH, 8 * MIB)
    hear(of, FAR_S, 0.03, others=True, answers=SAMPLES)
    assert (of.depth, of.most_bytes, of.most_partition_bytes) == (MOST_DEPTH, 16 * MIB, 2 * MIB)


def test_a_single_partition_is_asked_for_more_and_more() -> None:
    of, pool = sizes()
    hear(of, FAR_S, 0.0, others=False)
    assert (of.depth, of.most_bytes, of.most_partition_bytes) == (1, 32 * MIB, 32 * MIB)
    assert pool.budget == 2 * (32 * MIB + OVERHEAD) + SPARED


def test_what_an_operator_has_set_does_not_grow() -> None:
    of, pool = sizes(most_fetch_bytes=0, most_partition_fetch_bytes=0, most_buffer_memory=0)
    hear(of, FAR_S, 0.0, others=False)
    assert (of.depth, of.most_bytes, of.most_partition_bytes) == (1, 8 * MIB, MIB)
    hear(of, FAR_S, 0.0, others=True)
    assert of.depth == MOST_DEPTH
    assert pool.budget == 18 * MIB


def test_the_bound_of_memory() -> None:
    of, pool = sizes(most_buffer_memory=40 * MIB)
    hear(of, FAR_S, 0.0, others=True)
    assert pool.budget == 40 * MIB


def test_answers_do_not_grow_beyond_what_memory_holds_at_a_time() -> None:
    """As many as may be under way, and one that is being sent on."""
    for others in (True, False):
        of, pool = sizes()
        hear(of, FAR_S, 0.0, others=others)
        assert (of.depth, of.most_bytes) == ((MOST_DEPTH, 16 * MIB) if others else (1, 32 * MIB))
        assert (of.depth + 1) * (of.most_bytes + OVERHEAD) + SPARED <= pool.budget <= 96 * MIB
    of, _ = sizes(most_buffer_memory=20 * MIB)
    hear(of, FAR_S, 0.0, others=True)
    assert (of.depth, of.most_bytes, of.most_partition_bytes) == (MOST_DEPTH, 8 * MIB, MIB)


def test_without_backlog_everything_is_given_back() -> None:
    of, pool = sizes()
    hear(of, FAR_S, 0.0, others=True)
    of.reset()
    assert (of.depth, of.most_bytes, of.most_partition_bytes) == (1, 8 * MIB, MIB)
    assert pool.budget == 18 * MIB
    hear(of, FAR_S, 0.0, others=True, answers=SAMPLES - 1)
    assert of.depth == 1


def test_the_bound_is_one_for_all_brokers() -> None:
    """
    1. Three brokers are far away: together they borrow no more than one may.
    2. What one of them gives back goes to the others; when all have, the budget is what it was.
    """
    first, pool = sizes()
    of = [first, *(Sizes(first._settings, pool) for _ in range(2))]
    for each in of:
        hear(each, FAR_S, 0.0, others=True)
        assert pool.budget <= 96 * MIB
    assert pool.budget == 96 * MIB
    of[0].reset()
    assert pool.budget == 96 * MIB
    for each in of:
        each.reset()
    assert pool.budget == 18 * MIB
