"""The headers of requests and responses (KIP-482 for the flexible ones)."""

import functools
import struct

from mirror.wire.primitives import NO_TAGS, MalformedFrame, read_tags, string

SIZE = struct.Struct(">i")
FRAME_HEAD = struct.Struct(">ihhi")
"""The beginning of a request's frame: size, api key, version, correlation id. ``header_end`` follows."""
LAST_CORRELATION_ID = 0x7FFFFFFF
"""The largest correlation id; 0 follows."""
_REQUEST = struct.Struct(">hhi")


def request_header(*, api_key: int, version: int, correlation_id: int, client_id: str, flexible: bool) -> bytes:
    """Returns request header v1, or v2 when ``flexible``. The client id is never compact (the schema says so)."""
    return _REQUEST.pack(api_key, version, correlation_id) + header_end(client_id, flexible=flexible)


@functools.lru_cache(maxsize=64)
def header_end(client_id: str, *, flexible: bool) -> bytes:
    """Returns the part of the header behind the correlation id: the same for every request of a connection."""
    name = string(client_id, compact=False)
    return name + NO_TAGS if flexible else name


def after_response_header(frame: memoryview, *, flexible: bool) -> int:
    """Returns where a response's body begins: behind the correlation id (v0), and the tags (v1) when ``flexible``."""
    if len(frame) < SIZE.size:
        raise MalformedFrame(f"response of {len(frame)} bytes has no correlation id")
    return read_tags(frame, SIZE.size)[1] if flexible else SIZE.size
