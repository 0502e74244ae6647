"""Realistic records: JSON events, most of them with a key and with headers, and some null values.

They are made once and sent repeatedly, so that the demo never waits for them. The same seed gives the same bytes.
No part of a record holds a tab, a line feed, or (in headers) a comma or colon: Kafka's console producer splits there.
"""

import base64
import json
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["NULL_MARKER", "DemoRecord", "console_line", "cycle", "pool"]

NULL_MARKER = "NULL"
"""How a null key, value or set of headers is written for the console producer (its ``null.marker``)."""

_POOL_RECORDS = 12_000
_SEED = 712
_EVERY_NULL_VALUE = 40
_EVERY_NULL_KEY = 9
_EVERY_WITHOUT_HEADERS = 7
_CUSTOMERS = 5_000
_CURRENCIES = ("CHF", "DKK", "EUR", "GBP", "NOK", "SEK", "USD")
_EVENTS = ("order.created", "order.paid", "order.shipped", "order.delivered", "order.returned", "payment.failed")
_NOTES = (
    "leave the parcel with the neighbour on the ground floor",
    "deliver after six in the evening, the bell does not ring",
    "gift wrapping with a handwritten card",
    "the buyer asked for an invoice by post",
    "fragile, keep upright, do not stack",
    "return of a previous order, refund on arrival",
)


class DemoRecord(NamedTuple):
    """One record for a producer."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def pool(count: int = _POOL_RECORDS, *, seed: int = _SEED) -> list[DemoRecord]:
    """Returns distinct records, of about 1 KB on average and 300 bytes to 4 KB each.

    Every kind is among the first 40: with and without key, headers and value.
    """
    rng = random.Random(seed)
    return [_record(rng, number) for number in range(count)]


def cycle(records: Sequence[DemoRecord], start: int = 0) -> Iterator[DemoRecord]:
    """Yields the records over and over, beginning at index ``start``."""
    at = start % len(records)
    while True:
        yield records[at]
        at = (at + 1) % len(records)


def console_line(record: DemoRecord) -> bytes:
    """Returns a record as one line for Kafka's console producer: headers, key and value, with tabs in between."""
    headers = ",".join(f"{name}:{NULL_MARKER if value is None else value.decode()}" for name, value in record.headers)
    key = NULL_MARKER if record.key is None else record.key.decode()
    value = NULL_MARKER if record.value is None else record.value.decode()
    return f"{headers or NULL_MARKER}\t{key}\t{value}\n".encode()


def _record(rng: random.Random, number: int) -> DemoRecord:
    key = None if number % _EVERY_NULL_KEY == _EVERY_NULL_KEY - 1 else f"customer-{rng.randrange(_CUSTOMERS)}".encode()
    # A null value without a key would mean nothing: the key names the record that it deletes.
    gone = number % _EVERY_NULL_VALUE == _EVERY_NULL_VALUE - 1 and key is not None
    bare = number % _EVERY_WITHOUT_HEADERS == _EVERY_WITHOUT_HEADERS - 1
    return DemoRecord(key, None if gone else _event(rng), () if bare else _headers(rng))


def _headers(rng: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    trace = f"{rng.getrandbits(64):016x}".encode()
    retry: tuple[tuple[str, bytes | None], ...] = (("retry-of", None),) if rng.random() < 0.2 else ()
    return (("content-type", b"application/json"), ("trace", trace), *retry)


def _event(rng: random.Random) -> bytes:
    lines = [
        {
            "sku": _token(rng),
            "quantity": rng.randrange(1, 10),
            "price": rng.randrange(100, 99_999) / 100,
            "batch": _token(rng),
            "note": rng.choice(_NOTES),
        }
        for _ in range(min(24, 1 + int(rng.expovariate(0.24))))
    ]
    event = {
        "event": rng.choice(_EVENTS),
        "id": f"{rng.getrandbits(96):024x}",
        "at": 1_760_000_000_000 + rng.randrange(10_000_000_000),
        "currency": rng.choice(_CURRENCIES),
        "total": rng.randrange(100, 999_999) / 100,
        "signature": _token(rng) + _token(rng),
        "lines": lines,
    }
    return json.dumps(event, separators=(",", ":")).encode()


def _token(rng: random.Random) -> str:
    """Returns sixteen characters that no codec shrinks by more than a quarter."""
    return base64.urlsafe_b64encode(rng.randbytes(12)).decode()
