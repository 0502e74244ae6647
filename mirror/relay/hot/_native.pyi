from mirror.relay.hot.acks import Acknowledged
from mirror.relay.hot.gather import Gathered
from mirror.relay.hot.native import Outbox as Outbox
from mirror.relay.hot.plain import Taken
from mirror.relay.partition.queue import Queue
from mirror.wire.produce import Expected, Framing, PlainAnswer

def take(
    flexible: bool,
    outbox: Outbox,
    buf: memoryview,
    at: int,
    end: int,
    due: int,
    index: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    most_length: int,
    attributes_below: int,
    /,
) -> Taken: ...
def gather(
    ready: list[Queue], most: int, max_size: int, framing: Framing, correlation_id: int, join_below: int, /
) -> Gathered: ...
def acknowledge(taken: list[Queue], answer: PlainAnswer, ready: list[Queue], /) -> Acknowledged | None: ...
def acknowledge_expected(
    taken: list[Queue], frame: memoryview, likely: Expected, ready: list[Queue], /
) -> Acknowledged | None: ...
