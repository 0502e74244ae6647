"""The settings of the raw clients: a mapping with Kafka's names, as for other Kafka clients."""

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails

from mirror.raw.errors import InvalidConfig
from mirror.service.config.checks.flows import check_group
from mirror.service.config.checks.keys import JAVA
from mirror.service.config.checks.refusal import REFUSED, refused
from mirror.service.config.cluster import ClusterSettings
from mirror.service.config.kinds import GIB, KIB, MIB, Choice, Milliseconds, Size, Switch

S = TypeVar("S", bound="ClientSettings")

_BUILT_IN = {
    "missing": ("is required", "add it"),
    "string_type": ("must be text", "give a str"),
}


def _check_raw(value: bool) -> bool:
    if not value:
        raise refused("is what this client does", "for single records, use another client of Kafka")
    return value


class ClientSettings(ClusterSettings):
    """The settings of both clients: how to reach the cluster."""

    client_id: str = "mirror-raw"
    """Name that brokers show in their logs, metrics and quotas."""

    @field_validator("client_rack")
    @classmethod
    def _check_rack(cls, value: str) -> str:
        if value:
            raise refused("is not supported: raw clients fetch from leaders", "remove it")
        return value


class ConsumerSettings(ClientSettings):
    """``RawConsumer``."""

    fetch_raw_bytes: Annotated[bool, Switch(), AfterValidator(_check_raw)] = True
    """KIP-712's switch, which is always on: values are whole batches."""
    group_id: Annotated[str, AfterValidator(check_group)] = ""
    """Consumer group, for subscribe() and commit(). Empty: none."""
    group_protocol: Annotated[Literal["classic", "consumer"], Choice(("classic", "consumer"), fold=str.lower)] = (
        "classic"
    )
    """How the group agrees. consumer: the brokers decide (KIP-848, Kafka 4.0), with a session timeout of their own."""
    group_instance_id: Annotated[str, AfterValidator(check_group)] = ""
    """Static membership (KIP-345): the member keeps its partitions over a restart within session.timeout.ms. Empty:
    dynamic."""
    session_timeout_ms: Annotated[int, Milliseconds(minimum=1_000)] = 45_000
    """A member that the group has not heard of for this long loses its partitions to the others."""
    max_poll_interval_ms: Annotated[int, Milliseconds(minimum=1_000), Field(validate_default=True)] = 300_000
    """So does one that did not call poll() for this long. At least session.timeout.ms."""
    auto_offset_reset: Annotated[
        Literal["latest", "earliest", "none"], Choice(("latest", "earliest", "none"), fold=str.lower)
    ] = "latest"
    """Where to begin if there is no committed offset, or the log does not have the position; none: an error."""
    enable_auto_commit: Annotated[bool, Switch()] = False
    """Offsets are committed by commit() only; true is refused."""
    isolation_level: Annotated[
        Literal["read_committed", "read_uncommitted"], Choice(("read_committed", "read_uncommitted"), fold=str.lower)
    ] = "read_committed"
    """read_committed leaves out the batches of aborted and of open transactions."""
    fetch_max_bytes: Annotated[int, Size(minimum=KIB, maximum=GIB)] = 8 * MIB
    """Most bytes that one fetch response and one poll() hold, unless the first batch alone is larger (KIP-74)."""
    max_partition_fetch_bytes: Annotated[int, Size(minimum=KIB, maximum=GIB)] = MIB
    """Most bytes of one partition in a fetch response, unless its first batch alone is larger."""
    fetch_min_bytes: Annotated[int, Size(minimum=1, maximum=GIB), Field(validate_default=True)] = 1
    """A broker waits until it has this much to answer with, up to fetch.max.wait.ms."""
    fetch_max_wait_ms: Annotated[int, Milliseconds(minimum=1)] = 500
    """How long a broker holds a fetch request that it has nothing for."""

    @field_validator("max_poll_interval_ms")
    @classmethod
    def _check_poll_interval(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("session_timeout_ms", value)
        if value < least:
            raise refused(f"must be at least session.timeout.ms ({least} ms), and is {value} ms", "raise it")
        return value

    @field_validator("enable_auto_commit")
    @classmethod
    def _check_auto_commit(cls, value: bool) -> bool:
        if value:
            raise refused("is not supported: nobody else knows what was done with a batch", "call commit() after that")
        return value

    @field_validator("fetch_min_bytes")
    @classmethod
    def _check_fetch_min(cls, value: int, info: ValidationInfo) -> int:
        most = info.data.get("fetch_max_bytes", value)
        if value > most:
            raise refused(f"must be at most fetch.max.bytes ({most} bytes), and is {value} bytes", "lower it")
        return value


def _check_delivery(value: int, info: ValidationInfo) -> int:
    least = info.data.get("request_timeout_ms", value)
    if value < least:
        raise refused(f"must be at least request.timeout.ms ({least} ms), and is {value} ms", "raise it")
    return value


DeliveryTimeout = Annotated[
    int, Milliseconds(minimum=100), AfterValidator(_check_delivery), Field(validate_default=True)
]
"""delivery.timeout.ms, in settings that have request.timeout.ms before it."""


class ProducerSettings(ClientSettings):
    """``RawProducer``."""

    send_raw_bytes: Annotated[bool, Switch(), AfterValidator(_check_raw)] = True
    """KIP-712's switch, which is always on: values are whole batches."""
    max_request_size: Annotated[int, Size(minimum=KIB, maximum=100 * MIB)] = 4 * MIB
    """Most bytes of a produce request, unless its first batch alone is larger."""
    buffer_memory: Annotated[int, Size(minimum=KIB, maximum=64 * GIB)] = 32 * MIB
    """Most bytes of batches without an answer yet; then send() waits. One larger batch is taken by itself."""
    max_block_ms: Annotated[int, Milliseconds(minimum=0)] = 60_000
    """How long send() waits for room, and for what it has to know of the topic."""
    delivery_timeout_ms: DeliveryTimeout = 120_000
    """A batch that was not acknowledged this long after send() has failed. At least request.timeout.ms."""


def read_settings(kind: type[S], config: Mapping[str, Any], *, prefix: str = "") -> S:
    """Returns the settings in ``config``: Kafka's names with dots -> values as in a configuration file.
    ``prefix``: what precedes the names where they come from; for messages only.

    Raises:
        InvalidConfig: lists all problems, one line each. No value is shown: it may be a secret.
    """
    try:
        return kind.model_validate(dict(config), by_alias=True, by_name=False)
    except ValidationError as error:
        found = [_told(kind, each, prefix) for each in error.errors(include_url=False, include_input=False)]
        raise InvalidConfig("\n".join(found)) from None


def _told(kind: type[S], error: ErrorDetails, prefix: str) -> str:
    key = ".".join(map(str, error["loc"]))
    field = kind.model_fields.get(key)
    key = key if field is None else str(field.alias)
    if error["type"] == REFUSED:
        problem, remedy = error["ctx"]["problem"], error["ctx"]["remedy"]
    elif error["type"] == "extra_forbidden":
        problem, remedy = _unknown(kind, key, prefix)
    else:
        problem, remedy = _BUILT_IN.get(error["type"], (error["msg"], "see docs/RAW.md"))
    return f"{kind.__doc__ or ''}".strip("`.") + f": {prefix}{key}: {problem}; {remedy}"


def _unknown(kind: type[S], key: str, prefix: str) -> tuple[str, str]:
    if key in JAVA:
        return "is a setting of Java clients", JAVA[key]
    known = [str(field.alias) for field in kind.model_fields.values()]
    near = difflib.get_close_matches(key, known, n=1)
    return "is unknown", f"did you mean {prefix}{near[0]}?" if near else f"remove it; known: {', '.join(sorted(known))}"
