"""Makes realistic records: JSON events that lz4 and zstd compress by a factor of 3 to 4.

Keys and a small vocabulary are repeated from record to record; ids and amounts are not. The same seed gives the same
bytes.
"""

import base64
import json
import random

_VOCABULARY = """
    account address amount approved basket cancelled card carrier checkout country courier currency customer
    declined delivered delivery discount dispatched express failed gift invoice item letter market merchant model
    order parcel partial payment pending pickup postal price product promotion quantity received refund region
    rejected retry returned route scanner seller shipment shipping shop sku standard status stock store supplier
    ticket total tracking transfer transit unit update value vendor voucher warehouse weight window
"""
_WORDS = tuple(_VOCABULARY.split())
_COUNTRIES = ("AT", "BE", "CH", "DE", "DK", "ES", "FI", "FR", "IE", "IT", "NL", "NO", "PL", "PT", "SE", "US")
_EVENTS = ("order.created", "order.paid", "order.shipped", "order.delivered", "order.returned", "payment.failed")
_POOL_BYTES = 32_000_000
"""Default size of a pool. It is more than the largest batch has uncompressed (1 MB stored, four times that inside), so
that no batch has a record twice."""


def pool(record_size: int, *, seed: int, total_bytes: int = _POOL_BYTES) -> list[bytes]:
    """Returns distinct records of exactly ``record_size`` bytes: ``total_bytes`` in all, but at least 64 records.

    Args:
        record_size: bytes of a record's value, at least 64.
        seed: seed of the random choices.
        total_bytes: bytes of all records together.

    Raises:
        ValueError: ``record_size`` is below 64.
    """
    if record_size < 64:
        raise ValueError(f"a record of {record_size} bytes holds no event: give 64 or more")
    rng = random.Random(seed)
    return [_record(rng, record_size) for _ in range(max(64, total_bytes // record_size))]


def _record(rng: random.Random, size: int) -> bytes:
    event: dict[str, object] = {
        "event": rng.choice(_EVENTS),
        "id": f"{rng.getrandbits(64):016x}",
        "at": 1_760_000_000_000 + rng.randrange(10_000_000_000),
        "country": rng.choice(_COUNTRIES),
        "total": rng.randrange(100, 999_999) / 100,
    }
    text = json.dumps(event, separators=(",", ":"))
    lines = []
    left = size - len(text) - len(',"lines":[]')
    while left > 0:
        line = (
            f'{{"sku":"{_token(rng)}","batch":"{_token(rng)}","quantity":{rng.randrange(1, 10)},'
            f'"price":{rng.randrange(100, 99_999) / 100},"status":"{rng.choice(_WORDS)}",'
            f'"note":"{rng.choice(_PHRASES)}"}}'
        )
        lines.append(line)
        left -= len(line) + 1
    # The record is cut to its size, so its last line may be incomplete. That makes no difference to a compressor.
    return (text[:-1] + ',"lines":[' + ",".join(lines) + "]}")[:size].encode().ljust(size)


def _token(rng: random.Random) -> str:
    """Returns twelve characters that no compressor shrinks by more than a quarter."""
    return base64.urlsafe_b64encode(rng.randbytes(9)).decode()


def _phrases() -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(_WORDS, k=rng.randrange(6, 14))) for _ in range(40)]


_PHRASES = _phrases()
