"""Estimates how well a topic's records compress (KIP-126), so that a batch is closed before it is too large."""

from mirror.records.header import Codec

INITIAL = 1.0
IMPROVING_STEP = 0.005
"""The estimate falls by at most this when a batch compressed better."""
DETERIORATING_STEP = 0.05
"""The estimate rises by at least this when a batch compressed worse: a batch that is too large costs more than a small
one."""
FACTOR = 1.05
"""Safety margin: estimates are multiplied by it, because compression varies between batches."""


class RatioEstimator:
    """The estimated ratio of compressed to plain bytes, for one topic and each codec. Kafka's
    ``CompressionRatioEstimator``, whose constants these are."""

    def __init__(self) -> None:
        self._ratios: dict[Codec, float] = {}

    def estimated(self, codec: Codec) -> float:
        """Returns the estimate with its safety margin; 1 for bytes that are not compressed."""
        return self.ratio(codec) * FACTOR if codec is not Codec.NONE else 1.0

    def ratio(self, codec: Codec) -> float:
        """Returns the estimate without the safety margin."""
        return self._ratios.get(codec, INITIAL)

    def observe(self, codec: Codec, ratio: float) -> None:
        """Learns from a batch that was compressed to ``ratio`` times its plain bytes."""
        now = self.ratio(codec)
        if ratio < now:
            now = max(now - IMPROVING_STEP, ratio)
        elif ratio > now:
            now = max(now + DETERIORATING_STEP, ratio)
        self._ratios[codec] = now

    def reset(self, codec: Codec, ratio: float) -> None:
        """Learns from a batch that turned out too large and is split: the estimate was too low. ``ratio``: compressed
        to plain bytes of that batch."""
        self._ratios[codec] = max(INITIAL, ratio)
