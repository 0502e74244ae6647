"""The estimator of KIP-126: what each observation does to the estimate."""

import pytest

from mirror.records.content.ratio import RatioEstimator
from mirror.records.header import Codec


def test_it_begins_at_one_and_has_a_margin() -> None:
    ratios = RatioEstimator()
    assert ratios.ratio(Codec.ZSTD) == 1.0
    assert ratios.estimated(Codec.ZSTD) == pytest.approx(1.05)


def test_bytes_that_are_not_compressed_need_no_margin() -> None:
    assert RatioEstimator().estimated(Codec.NONE) == 1.0


def test_it_improves_in_small_steps_and_not_below_what_was_seen() -> None:
    ratios = RatioEstimator()
    ratios.observe(Codec.LZ4, 0.1)
    assert ratios.ratio(Codec.LZ4) == pytest.approx(0.995)
    ratios.observe(Codec.LZ4, 0.993)
    assert ratios.ratio(Codec.LZ4) == pytest.approx(0.993)


def test_it_deteriorates_at_once() -> None:
    ratios = RatioEstimator()
    for _ in range(200):
        ratios.observe(Codec.GZIP, 0.2)
    assert ratios.ratio(Codec.GZIP) == pytest.approx(0.2)
    ratios.observe(Codec.GZIP, 0.21)
    assert ratios.ratio(Codec.GZIP) == pytest.approx(0.25)
    ratios.observe(Codec.GZIP, 0.9)
    assert ratios.ratio(Codec.GZIP) == pytest.approx(0.9)


def test_a_split_resets_it() -> None:
    ratios = RatioEstimator()
    for _ in range(200):
        ratios.observe(Codec.ZSTD, 0.1)
    ratios.reset(Codec.ZSTD, 0.7)
    assert ratios.ratio(Codec.ZSTD) == 1.0
    ratios.reset(Codec.ZSTD, 1.3)
    assert ratios.ratio(Codec.ZSTD) == 1.3


def test_each_codec_has_its_own() -> None:
    ratios = RatioEstimator()
    ratios.observe(Codec.ZSTD, 0.1)
    assert ratios.ratio(Codec.GZIP) == 1.0
