"""The table: rounds of real measurements in small, and what a table says about the size."""

import dataclasses
import math

import pytest

from bench.downconversion import rounds, sets
from bench.downconversion.plan import WHOLE, Plan, from_environment
from bench.downconversion.rounds import EQUAL, Row, advice
from bench.errors import BenchError
from mirror.records.header import Codec

KIB = 1 << 10


def row(size: int, *ratios: float, codec: Codec = Codec.NONE) -> Row:
    return Row(
        magic=1, codec=codec, chunk_bytes=size, mb_per_s=tuple(100 * ratio for ratio in ratios), ratios=ratios,
        peak_bytes=50_000_000, grown_bytes=1_000_000,
    )  # fmt: skip


def test_the_best_size_has_the_highest_mean() -> None:
    rows = [
        row(WHOLE, 1, 1, 1), row(16 * KIB, 0.5, 0.7, 0.8), row(128 * KIB, 1.0, 1.2, 1.1),
        row(WHOLE, 1, 1, 1, codec=Codec.LZ4), row(16 * KIB, 0.7, 0.7, 0.7, codec=Codec.LZ4),
        row(128 * KIB, 1.0, 1.1, 1.3, codec=Codec.LZ4),
    ]  # fmt: skip
    said = advice(rows)
    assert said.best == 128 * KIB
    assert said.means == pytest.approx({16 * KIB: 0.7, 128 * KIB: 1.1})
    assert said.spread == pytest.approx(0.125)  # of 0, 0.1, 0.15 and 0.15


def test_the_default_stays_unless_another_is_clearly_better() -> None:
    for better, spread, kept in ((EQUAL - 0.01, 0, True), (EQUAL + 0.01, 0, False), (0.2, 0.3, True)):
        rows = [row(128 * KIB, 1 - spread, 1, 1 + spread), row(256 * KIB, *[1 + better] * 3)]
        rows += [row(512 * KIB, 0.5 - spread, 0.5, 0.5 + spread)]
        assert advice(rows).keeps(128 * KIB) is kept
        assert advice(rows).keeps(256 * KIB)
    assert not advice(rows).keeps(64 * KIB)


def _small() -> Plan:
    quick = from_environment({"DOWNCONVERSION_QUICK": "1"})
    return dataclasses.replace(
        quick, codecs=(Codec.GZIP,), chunk_sizes=(16 * KIB,), rounds=2, partitions=2, partition_bytes=200_000,
        plain_bytes=1,
    )  # fmt: skip


def test_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Each size and the whole conversion have a process of their own in each round; who is first changes.
    2. A row has the ratios to the whole of the same round, and its memory.
    """
    order: list[int] = []
    run = rounds._run

    def noting(arguments: dict[str, object]) -> dict[str, object]:
        order.append(int(str(arguments["chunk_bytes"])))
        return run(arguments)

    monkeypatch.setattr(rounds, "_run", noting)
    said: list[str] = []
    whole, chunked = rounds.measure(_small(), said.append)
    assert order == [WHOLE, WHOLE, 16 * KIB, 16 * KIB, WHOLE]
    assert (whole.chunk_bytes, chunked.chunk_bytes) == (WHOLE, 16 * KIB)
    assert set(whole.ratios) == {1}
    assert chunked.ratios == tuple(mine / other for mine, other in zip(chunked.mb_per_s, whole.mb_per_s, strict=True))
    assert all(math.isfinite(speed) and speed > 0 for speed in chunked.mb_per_s)
    assert whole.peak_bytes > whole.grown_bytes >= 0
    assert len(said) == 1
    assert said[0].startswith("magic 1, gzip: whole: 1.00, 16: ")


def test_a_measurement_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "write", lambda *_, **__: [1])
    with pytest.raises(BenchError, match=r"(?s)a conversion ended with 1: .*No such file"):
        rounds.measure(_small(), print)
