"""Checks values of a flow's settings, alone or together with settings that were validated before them.

Each function returns the value as it is, or raises ``PydanticCustomError`` (``refused``).
"""

import re
from collections.abc import Mapping

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from mirror.service.config.checks.entries import TOPIC_NAME_MAX, check_topic_entry
from mirror.service.config.checks.refusal import refused
from mirror.service.selection import GROUP_REFERENCE, is_internal, is_topic_name, topic_pattern

FLOW_ID_MAX = 200
"""The internal topic's name contains the id, and no topic name has more than 249 characters."""
_FLOW_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*?(->[A-Za-z0-9][A-Za-z0-9._-]*)?")

ACCEPTABLE = ("unverifiable", "oversize")
"""Findings that an audit can be told to accept: the same as ``audit.model.request.ACCEPTABLE``, which the daemon does
not import."""


def check_acceptable(kind: str) -> str:
    """Returns an entry of `audit.accept` as it is, if it is in `ACCEPTABLE`."""
    if kind not in ACCEPTABLE:
        raise refused("is nothing that an audit can pass", f"write {' or '.join(ACCEPTABLE)}, or take it off the list")
    return kind


def check_groups(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the entries of `groups` as they are, if there is at least one."""
    if not entries:
        raise refused("names no group", 'write ".*" for all groups, or remove this key')
    return entries


def check_renames(renames: Mapping[str, str], info: ValidationInfo) -> Mapping[str, str]:
    """Returns `topic.rename` as it is, if the flow may rename topics, and to these names."""
    if renames and info.data.get("offsets") == "exact":
        raise refused(
            "gives topics another name, and with offsets: exact they keep theirs",
            "set offsets: mapped, or remove it",
            at="offsets",
        )
    for entry, name in renames.items():
        check_key(entry)
        groups = topic_pattern(entry).groups
        if any(int(number) > groups for number in GROUP_REFERENCE.findall(name)):
            raise refused(
                f'gives topics that match "{entry}" the name "{name}", which refers to a group that this expression '
                "does not have",
                f"it has {groups}; they are counted from \\1",
            )
        # The text that a reference to a group stands for is not known yet. It is part of a topic's name: x stands for
        # it.
        example = GROUP_REFERENCE.sub("x", name)
        if not is_topic_name(example) or len(example) > TOPIC_NAME_MAX or is_internal(example):
            raise refused(
                f'gives topics that match "{entry}" the name "{name}", which no topic can have',
                "write letters, digits, dots, dashes, or \\1",
            )
    return renames


def check_rates(rates: Mapping[str, int]) -> Mapping[str, int]:
    """Returns `topic.max.bytes.per.second` as it is, if its keys are topics or expressions for topics."""
    for entry in rates:
        check_key(entry)
    return rates


def check_key(entry: str) -> None:
    """Raises PydanticCustomError if a mapping's key is neither a topic nor an expression for topics."""
    try:
        check_topic_entry(entry)
    except PydanticCustomError as error:
        context = error.context or {}
        raise refused(f"has a key that {context['problem']}", context["remedy"]) from error


def check_flow_id(value: str) -> str:
    """Returns a `flow.id` as it is, if it can be part of the internal topic's name."""
    if value and (len(value) > FLOW_ID_MAX or not _FLOW_ID.fullmatch(value)):
        raise refused(
            f"must be at most {FLOW_ID_MAX} letters, digits, dots, dashes and underscores, with one -> between them or "
            "none",
            "write the id that mirror status showed before, such as west->east",
        )
    return value


def check_group(value: str) -> str:
    """Returns the name of a consumer group as it is, if it is valid."""
    if len(value) > 249 or not value.isprintable():
        raise refused("must be at most 249 printable characters", "write a short name")
    return value


def check_dead_letters(name: str, info: ValidationInfo) -> str:
    """Returns `oversize.record.topic` as it is, if it can be a topic, and `oversize.record` uses it."""
    policy = info.data.get("oversize_record")
    if name and (not is_topic_name(name) or len(name) > TOPIC_NAME_MAX or is_internal(name)):
        raise refused(
            f"is {name!r}, which is no topic for dead letters", "write the name of a topic at the destination"
        )
    if policy == "deadletter" and not name:
        raise refused(
            "is missing, and oversize.record: deadletter needs it",
            "write the name of a topic at the destination for records that are too large",
            at="oversize.record",
        )
    if name and policy in ("halt", "drop"):
        raise refused(
            f"is set, and oversize.record: {policy} writes no dead letters",
            "set oversize.record: deadletter, or remove it",
            at="oversize.record",
        )
    return name


def check_separator(value: str) -> str:
    """Returns `replication.policy.separator` as it is, if it can stand in a topic's name."""
    if not value or not is_topic_name(value):
        raise refused("must be letters, digits, dots, dashes or underscores", 'write ".", as MirrorMaker 2 does')
    return value


def check_not_empty(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the entries of `topics` as they are, if there is at least one."""
    if not entries:
        raise refused("names no topic", 'write at least one name or regular expression, or ".*" for all topics')
    return entries
