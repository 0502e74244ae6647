"""The root digest, which identifies the batches of a partition. This module needs neither Spark nor Arrow, so that a
certificate can be verified without them."""

import hashlib
import struct
from collections.abc import Iterable
from typing import Any

from mirror.audit.model.result import RangeContent

_RANGE = struct.Struct(">qqq")


def root(digest: str, contents: Iterable[RangeContent]) -> str:
    """Returns the root digest of a partition's ranges, in hex. It covers each range's start, end and width (8 bytes
    each, big-endian) and its digest, in order.

    Two sides that were read in the same ranges have the same root if, and only if, they have the same batches at the
    same (source) offsets: all header fields except the writer's own, and all bytes behind the header.

    Args:
        digest: ``xxh3_128`` or ``sha256``.
        contents: the ranges, in order.

    Raises:
        ValueError: the digest is not known, or a range's digest is not hex.
    """
    made = _new(digest)
    for each in contents:
        made.update(_RANGE.pack(each.start, each.end, each.width) + bytes.fromhex(each.digest))
    text: str = made.hexdigest()
    return text


def _new(digest: str) -> Any:
    if digest == "sha256":
        return hashlib.sha256()
    if digest == "xxh3_128":
        import xxhash

        return xxhash.xxh3_128()
    raise ValueError(f"digest {digest!r} is not known")
