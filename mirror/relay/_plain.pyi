from mirror.relay.plain import Taken

def take(
    flexible: bool,
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
