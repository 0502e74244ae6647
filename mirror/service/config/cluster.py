"""Settings of one Kafka cluster."""

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from mirror.service.config.checks.refusal import refused
from mirror.service.config.kinds import GIB, KIB, Addresses, HostPort, Milliseconds, Size
from mirror.service.config.security import SecuritySettings


def _check_client_id(value: str) -> str:
    if not value or len(value) > 249 or not value.isprintable():
        raise refused("must be 1 to 249 printable characters", "write a short name; brokers show it in logs and quotas")
    return value


def _check_rack(value: str) -> str:
    if len(value) > 249 or not value.isprintable():
        raise refused("must be at most 249 printable characters", "write the broker.rack of brokers near the mirror")
    return value


class ClusterSettings(SecuritySettings):
    """One Kafka cluster and how to talk to it."""

    bootstrap_servers: Annotated[tuple[HostPort, ...], Addresses()]
    """Brokers to ask for the rest of the cluster."""
    client_id: Annotated[str, AfterValidator(_check_client_id)] = "mirror"
    """Name that brokers show in their logs, metrics and quotas."""
    client_rack: Annotated[str, AfterValidator(_check_rack)] = ""
    """Rack or zone of the mirror. A source's leaders may name a follower in the same rack, which is fetched from then
    (KIP-392; the brokers need replica.selector.class and broker.rack). Empty: leaders are fetched from."""
    request_timeout_ms: Annotated[int, Milliseconds(minimum=100)] = 30_000
    """A request without an answer for this long is given up, and its connection with it."""
    socket_connection_setup_timeout_ms: Annotated[int, Milliseconds(minimum=100)] = 10_000
    """A connection has to be made within this time."""
    reconnect_backoff_ms: Annotated[int, Milliseconds(minimum=1)] = 50
    """Pause before the first new attempt to connect; doubled, with jitter, after each failure."""
    reconnect_backoff_max_ms: Annotated[int, Milliseconds(minimum=1), Field(validate_default=True)] = 10_000
    """The longest such pause."""
    socket_receive_buffer_bytes: Annotated[int, Size(minimum=4 * KIB, maximum=GIB, also=-1)] = -1
    """SO_RCVBUF of each connection; -1 leaves it to the operating system, which adapts it."""
    socket_send_buffer_bytes: Annotated[int, Size(minimum=4 * KIB, maximum=GIB, also=-1)] = -1
    """SO_SNDBUF of each connection; -1 leaves it to the operating system, which adapts it."""

    @field_validator("reconnect_backoff_max_ms")
    @classmethod
    def _check_backoff(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("reconnect_backoff_ms", value)
        if value < least:
            raise refused(
                f"must be at least reconnect.backoff.ms ({least} ms), and is {value} ms",
                "raise it, or lower reconnect.backoff.ms",
                at="reconnect.backoff.ms",
            )
        return value
