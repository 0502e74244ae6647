"""The demo's topics: which client writes each, with which codec, in how many partitions and how large batches."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from mirror.demo.errors import DemoError

__all__ = ["ALL_TOPICS", "CODECS", "TOPICS", "Client", "TopicPlan", "parse_size", "records_for"]

Client = Literal["librdkafka", "java"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_STORED_PER_PAYLOAD: Mapping[str, float] = {"none": 1.01, "gzip": 0.295, "snappy": 0.445, "lz4": 0.44, "zstd": 0.29}
"""Stored bytes per byte of ``payload.pool``, in large batches; rounded down, so that no less is stored than asked."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?\Z", re.IGNORECASE)
SMALLEST_BYTES = 1_000_000
LARGEST_BYTES = 20_000_000_000
"""Anything larger is a benchmark: use `make bench`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One topic of the demo.

    Attributes:
        client: the client whose producer writes it.
        codec: compression of its batches.
        partitions: number of partitions.
        batch_bytes: largest size of a batch, as its producer counts.
        share: share of the bytes that the demo stores, in percent.
        prefix: prefix of the topic's name, if the cluster is shared with others.
        transactional: True if it is written in transactions, one in five aborted.
        trimmed: True if the first half of its records is deleted before the mirror starts: it then starts above 0.
    """

    client: Client
    codec: str
    partitions: int
    batch_bytes: int
    share: int
    prefix: str = ""
    transactional: bool = False
    trimmed: bool = False

    @property
    def name(self) -> str:
        """The topic's name."""
        kind = "-transactional" if self.transactional else "-trimmed" if self.trimmed else ""
        return f"{self.prefix}{self.client}-{self.codec}{kind}"


def _topic(client: Client, codec: str, partitions: int, batch_bytes: int, share: int) -> TopicPlan:
    return TopicPlan(client=client, codec=codec, partitions=partitions, batch_bytes=batch_bytes, share=share)


# Small batches come from small limits (and from the steady stream, which leaves no time to fill one). 1 MB is near
# a broker's default limit. gzip is slow to write, and a broker opens every batch, so there is less of it.
TOPICS = (
    _topic("librdkafka", "none", 4, 1_000_000, 18),
    _topic("librdkafka", "gzip", 2, 100_000, 4),
    _topic("librdkafka", "snappy", 3, 16_000, 10),
    _topic("librdkafka", "lz4", 4, 250_000, 12),
    _topic("librdkafka", "zstd", 6, 1_000_000, 10),
    _topic("java", "none", 4, 950_000, 18),
    _topic("java", "gzip", 2, 16_384, 3),
    _topic("java", "snappy", 3, 65_536, 7),
    _topic("java", "lz4", 3, 250_000, 9),
    _topic("java", "zstd", 4, 950_000, 9),
)
assert sum(topic.share for topic in TOPICS) == 100
_HARDER = (
    replace(_topic("librdkafka", "lz4", 3, 100_000, 2), transactional=True),
    replace(_topic("librdkafka", "zstd", 2, 100_000, 2), transactional=True),
    replace(_topic("librdkafka", "none", 2, 16_000, 2), trimmed=True),
)
"""Topics whose offsets a plain copy would not keep. Their shares are in addition to the 100 percent of ``TOPICS``."""
ALL_TOPICS = TOPICS + _HARDER


def records_for(plan: TopicPlan, *, total_bytes: int, record_bytes: float) -> int:
    """Returns how many records give the topic its share of the stored bytes; at least 40, which hold every kind.

    Args:
        plan: the topic.
        total_bytes: bytes to store in all topics together.
        record_bytes: average size of a record's key, value and headers, in bytes.
    """
    payload_bytes = total_bytes * plan.share / 100 / _STORED_PER_PAYLOAD[plan.codec]
    return max(40, round(payload_bytes / record_bytes))


def parse_size(text: str) -> int:
    """Returns the number of bytes for a text such as ``300MB`` or ``1.5G`` (powers of ten).

    Raises:
        DemoError: the text is not a size, or the size is outside the demo's range.
    """
    found = _SIZE.match(text.strip())
    if not found:
        raise DemoError(f"{text!r} is not a size", "give a number and a unit, such as 300MB or 1GB")
    size = round(float(found[1]) * _UNITS[found[2].upper()])
    if not SMALLEST_BYTES <= size <= LARGEST_BYTES:
        raise DemoError(f"a size of {text} is out of the demo's range", "give 1MB to 20GB")
    return size
