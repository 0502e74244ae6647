"""Where copies begin: the values of `start.from`."""

from datetime import UTC, datetime

from mirror.relay.settings import COMMITTED, EARLIEST, LATEST
from mirror.service.config.checks.refusal import refused

_WORDS = (EARLIEST, LATEST, COMMITTED)
_EXAMPLE = '"2026-11-30T00:00:00Z"'


def check_start(value: str) -> str:
    """Returns a value of `start.from` as it is; raises PydanticCustomError if it is neither a word nor a time."""
    if value in _WORDS:
        return value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise refused(
            "is neither earliest, latest or committed nor a time", f"write one of them, or a time such as {_EXAMPLE}"
        ) from None
    if time.tzinfo is None:
        raise refused("has no time zone", f"write a time with one, such as {_EXAMPLE}")
    if time < datetime(1970, 1, 1, tzinfo=UTC):
        raise refused("is before 1970, when the times of Kafka's records begin", "write earliest, or a later time")
    return value


def start_at_ms(value: str) -> int:
    """Returns the time that a value of `start.from` says, in ms since 1970; -1 if it is a word."""
    return -1 if value in _WORDS else round(datetime.fromisoformat(value).timestamp() * 1000)
