"""What a worker tells of a partition, as tests have it: usual but for what they say."""

from typing import Any

from mirror.service.telemetry.accounts import Stint
from mirror.service.telemetry.rows import PartitionRow


def row(topic: str = "t", partition: int = 0, **changes: Any) -> PartitionRow:
    usual: dict[str, Any] = {
        "destination": topic, "topic": topic, "partition": partition, "state": "active", "lag_records": 0,
        "source_end": 50, "position": 50, "committed": 40, "reason": "", "detail": "", "remedy": "",
        "waits": "", "waits_since": 0.0, "held_back": 0, "held_since": 0.0, "stint": stint(),
    }  # fmt: skip
    return PartitionRow(**(usual | changes))


def stint(begun: int = 0, position: int = 50, **changes: Any) -> Stint:
    """By default, ten offsets a batch and ten bytes an offset."""
    count = position - begun
    usual: dict[str, Any] = {
        "number": 1, "begun": begun, "begun_at_s": float(begun), "holes_from": begun, "inherited": -1,
        "position": position, "records": count, "batches": count // 10, "bytes": count * 10, "filled": 0,
    }  # fmt: skip
    return Stint(**(usual | changes))
