"""Checks the values of `start.from` and `start.group`."""

from datetime import UTC, datetime

from pydantic import ValidationInfo

from mirror.relay.settings import COMMITTED, EARLIEST, LATEST
from mirror.service.config.checks.flows import check_group
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
    """Returns the time in a value of `start.from`, in ms since 1970; -1 if the value is a word."""
    return -1 if value in _WORDS else round(datetime.fromisoformat(value).timestamp() * 1000)


def check_start_group(value: str, info: ValidationInfo) -> str:
    """Returns a value of `start.group` as it is, if `start.from` uses it, and it is not the flow's own group."""
    start, own = info.data.get("start_from"), info.data.get("group_id")
    if start == COMMITTED and not value:
        raise refused(
            "is missing, and start.from: committed needs it",
            "write the name of a consumer group at the source, such as the one of the mirror that ran before",
            at="start.from",
        )
    if value and start not in (COMMITTED, None):
        raise refused(
            f"is set, and start.from: {start} does not use it",
            "set start.from: committed, or remove it",
            at="start.from",
        )
    if value and value == own:
        raise refused(
            "is the flow's own group (group.id), which commits what this flow has copied",
            "give the flow another group.id",
            at="group.id",
        )
    return check_group(value)
