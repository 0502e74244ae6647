from mirror.relay.gather import Gathered
from mirror.relay.native import Outbox as Outbox
from mirror.relay.partition import Partition
from mirror.relay.plain import Taken

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
def gather(ready: list[Partition], max_size: int, between: bytes, /) -> Gathered: ...
