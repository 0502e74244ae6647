"""The requests and answers that pass the proxy, identified by their first bytes."""

import enum
import struct
from dataclasses import dataclass, field
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer

SIZE = struct.Struct(">i")
HEAD = struct.Struct(">hhi")
"""API key, API version and correlation id of a request, which follow the size."""
LARGEST = 1 << 28
"""Maximum size of a frame in bytes. A larger one is not Kafka's protocol: nothing here sends more than 100 MiB."""

_MODULES = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer)
REQUESTS: dict[int, Any] = {
    kind.API_KEY: kind
    for module in _MODULES
    for name, kind in vars(module).items()
    if name.endswith("Request") and isinstance(getattr(kind, "API_KEY", None), int)
}
"""API key -> the request's class."""
API_KEYS: dict[str, int] = {kind.name.removesuffix("Request"): key for key, kind in REQUESTS.items()}
"""Kafka's name ("Produce") -> API key."""


class Direction(enum.Enum):
    """The direction of bytes."""

    REQUESTS = "from the client to the broker"
    ANSWERS = "from the broker to the client"


@dataclass(slots=True, kw_only=True)
class Frame:
    """A whole request, or a whole answer.

    Attributes:
        link: number of the connection, from 1.
        node_id: node id of the broker.
        direction: tells whether this is a request or an answer.
        name: Kafka's name of the request, without "Request"; for example "API 99" if the API is not known here.
        version: API version.
        correlation_id: correlation id.
        data: all bytes, beginning with the size.
        request: the request that this answers; None: this is a request.
    """

    link: int
    node_id: int
    direction: Direction
    name: str
    version: int
    correlation_id: int
    data: bytes = field(repr=False)
    request: "Frame | None" = field(default=None, repr=False)

    def decode(self) -> Any:
        """Returns the decoded content, an object of ``kafka.protocol``.

        Raises:
            KeyError: the kind of request is not known here.
        """
        kind = REQUESTS[API_KEYS[self.name]] if self.direction is Direction.REQUESTS else answer_class(self.name)
        return kind.decode(self.data[SIZE.size :], version=self.version, header=True)


def answer_class(name: str) -> Any:
    """Returns the class of answers to a kind of request. ``name``: Kafka's name of the request.

    Raises:
        KeyError: the kind of request is not known here.
    """
    for module in _MODULES:
        found = getattr(module, f"{name}Response", None)
        if found is not None:
            return found
    raise KeyError(name)


def request_frame(data: bytes, *, link: int, node_id: int) -> Frame:
    """Returns the frame of a request.

    Args:
        data: the whole request: size i32, API key i16, API version i16, correlation id i32, and the rest.
        link: number of the connection.
        node_id: node id of the broker.

    Raises:
        ValueError: the data is too short for a request.
    """
    if len(data) < SIZE.size + HEAD.size:
        raise ValueError(f"a request of {len(data)} bytes")
    key, version, correlation_id = HEAD.unpack_from(data, SIZE.size)
    kind = REQUESTS.get(key)
    return Frame(
        link=link,
        node_id=node_id,
        direction=Direction.REQUESTS,
        name=kind.name.removesuffix("Request") if kind else f"API {key}",
        version=version,
        correlation_id=correlation_id,
        data=data,
    )


def answer_frame(data: bytes, request: Frame) -> Frame:
    """Returns the frame of a broker's answer.

    Args:
        data: the whole answer: size i32, correlation id i32, and the rest.
        request: the request that it has to answer.

    Raises:
        ValueError: the data is too short for an answer, or has another correlation id than the request.
    """
    if len(data) < 2 * SIZE.size:
        raise ValueError(f"an answer of {len(data)} bytes")
    (correlation_id,) = SIZE.unpack_from(data, SIZE.size)
    if correlation_id != request.correlation_id:
        raise ValueError(f"an answer to request {correlation_id}, and {request.correlation_id} is due")
    return Frame(
        link=request.link,
        node_id=request.node_id,
        direction=Direction.ANSWERS,
        name=request.name,
        version=request.version,
        correlation_id=correlation_id,
        data=data,
        request=request,
    )
