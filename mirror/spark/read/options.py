"""The options for reading. Names and meanings are those of Spark's own Kafka connector. Pure.

Spark passes options as text, and their names in any case. The error lists everything that is wrong with them.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from mirror.net.logs.leader_requests import EARLIEST, LATEST
from mirror.raw.errors import InvalidConfig
from mirror.raw.model import TopicPartition
from mirror.raw.settings import ClientSettings, read_settings
from mirror.service.config.kinds import KIB, MIB, Choice, Size
from mirror.spark.schema import FORMAT

T = TypeVar("T")
_NUMBER = re.compile("0|[1-9][0-9]{0,18}")
"""A number without leading zeros, so that there is only one way to write it, and with no more digits than an int64."""

PREFIX = "kafka."
ARROW_BYTES = 16 * MIB
"""Most bytes of an Arrow batch, unless one record batch alone is larger."""
PARTITION_BYTES = 128 * MIB
"""Default of ``maxBytesPerPartition``."""

SELECTING = ("subscribe", "subscribePattern", "assign")
STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""The first one that is given counts, as in Spark's connector."""
STRATEGY = "startingOffsetsByTimestampStrategy"
BATCH_ONLY = frozenset(ENDING)
STREAM_ONLY = frozenset({"maxOffsetsPerTrigger"})
OTHERS = (STRATEGY, "minPartitions", "maxBytesPerPartition", "failOnDataLoss", "includeBatch")
KNOWN = {name.lower(): name for name in (*SELECTING, *STARTING, *ENDING, *STREAM_ONLY, *OTHERS)}

_NO_GROUP = "remove it: there is no consumer group; a stream's place is in its checkpoint"
_RETRIES = "remove it: brokers are asked again for a minute"
NOT_HERE: Mapping[str, str] = {
    "kafka.group.id": _NO_GROUP,
    "groupidprefix": _NO_GROUP,
    "kafka.enable.auto.commit": _NO_GROUP,
    "kafka.auto.offset.reset": "write startingOffsets",
    "kafka.key.deserializer": "remove it: a row is a whole batch",
    "kafka.value.deserializer": "remove it: a row is a whole batch",
    "kafka.max.partition.fetch.bytes": "write kafka.fetch.max.bytes: one partition is fetched at a time",
    "includeheaders": "remove it: the records' headers are in the batch",
    "fetchoffset.numretries": _RETRIES,
    "fetchoffset.retryintervalms": _RETRIES,
    "kafkaconsumer.polltimeoutms": "write kafka.request.timeout.ms",
    "minoffsetspertrigger": "remove it, and use a longer trigger",
    "maxtriggerdelay": "remove it, and use a longer trigger",
    "maxrecordsperpartition": "write maxBytesPerPartition or minPartitions",
    "path": "call load() without a path",
}
"""Options of Spark's Kafka connector and of consumers that this source does not have, in lower case."""


class ReaderSettings(ClientSettings):
    """``kafka-raw-batches``."""

    client_id: str = "mirror-spark"
    """Name that brokers show in their logs, metrics and quotas."""
    isolation_level: Annotated[
        Literal["read_uncommitted", "read_committed"], Choice(("read_uncommitted", "read_committed"), fold=str.lower)
    ] = "read_uncommitted"
    """read_committed leaves out transaction markers and the batches of aborted and of open transactions."""
    fetch_max_bytes: Annotated[int, Size(minimum=KIB, maximum=ARROW_BYTES)] = 8 * MIB
    """Most bytes of one fetch response, unless the first batch alone is larger (KIP-74)."""

    @property
    def committed(self) -> bool:
        """True at read_committed."""
        return self.isolation_level == "read_committed"


class Selection(NamedTuple):
    """The topics or partitions to read. Exactly one of the fields is not empty."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


class Limit(NamedTuple):
    """Where reading begins or ends. Exactly one of the fields other than ``name`` is not None.

    Attributes:
        name: the option that says it.
        offset: EARLIEST or LATEST, for all partitions.
        offsets: the offset of each partition, or EARLIEST or LATEST.
        time: in ms since 1970, for all partitions: at the first record with this timestamp or a later one.
        times: the same for each partition.
    """

    name: str
    offset: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    time: int | None = None
    times: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """All options, parsed. ``streaming``: True for ``readStream``."""

    streaming: bool
    settings: ReaderSettings
    selection: Selection
    start: Limit
    end: Limit
    latest_if_later: bool = False
    """True if a partition without a record at or after the starting timestamp begins at its end; otherwise that is an
    error."""
    most_offsets: int | None = None
    least_partitions: int = 1
    partition_bytes: int = PARTITION_BYTES
    fail_on_data_loss: bool = True
    include_batch: bool = True


def read_options(given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """Parses the options that Spark passed.

    Args:
        given: name -> text.
        streaming: True for ``readStream``, False for ``read``. None: not known; then the options of both are accepted.

    Raises:
        InvalidConfig: lists everything that is wrong, one line each.
    """
    return _Reading({name.lower(): value for name, value in given.items()}, streaming).read()


class _Reading:
    """Parses the options. ``wrong``: the problems that were found."""

    def __init__(self, given: Mapping[str, str], streaming: bool | None) -> None:
        self.given = given
        self.streaming = streaming
        self.wrong: list[str] = []

    def read(self) -> ReadOptions:
        self._check_names()
        selection = self._selection()
        start = self._limit(STARTING, LATEST if self.streaming else EARLIEST)
        end = self._limit(ENDING, LATEST)
        for limit, unfit, word in ((start, LATEST, "latest (-1)"), (end, EARLIEST, "earliest (-2)")):
            if self.streaming is False and unfit in (limit.offset, *(limit.offsets or {}).values()):
                self._refuse(limit.name, f"{word} is not for read", "remove it: nothing would be read")
        latest_if_later = self._one(STRATEGY, _choice("error", "latest"), "error") == "latest"
        most_offsets = self._one("maxOffsetsPerTrigger", _positive, 0)
        least_partitions = self._one("minPartitions", _positive, 1)
        partition_bytes = self._one("maxBytesPerPartition", _size, PARTITION_BYTES)
        fail_on_data_loss = self._one("failOnDataLoss", _switch, True)
        include_batch = self._one("includeBatch", _switch, True)
        settings = self._settings()
        if self.wrong or settings is None:
            raise InvalidConfig("\n".join(self.wrong))
        return ReadOptions(
            streaming=bool(self.streaming),
            settings=settings,
            selection=selection,
            start=start,
            end=end,
            latest_if_later=latest_if_later,
            most_offsets=most_offsets or None,
            least_partitions=least_partitions,
            partition_bytes=partition_bytes,
            fail_on_data_loss=fail_on_data_loss,
            include_batch=include_batch,
        )

    def _refuse(self, name: str, problem: str, remedy: str) -> None:
        self.wrong.append(f"{FORMAT}: {name}: {problem}; {remedy}")

    def _check_names(self) -> None:
        for name in self.given:
            shown = KNOWN.get(name, name)
            if name in NOT_HERE:
                self._refuse(name, "is not an option of this data source", NOT_HERE[name])
            elif shown in BATCH_ONLY and self.streaming:
                self._refuse(shown, "is for read only", "remove it: a stream has no end")
            elif shown in STREAM_ONLY and self.streaming is False:
                self._refuse(shown, "is for readStream only", "remove it")
            elif name not in KNOWN and not name.startswith(PREFIX):
                near = difflib.get_close_matches(name, [*KNOWN, *_with_prefix()], n=1)
                known = ", ".join(sorted(KNOWN.values()))
                hint = f"did you mean {KNOWN.get(near[0], near[0])}?" if near else f"known: {known}, and {PREFIX}*"
                self._refuse(name, "is unknown", hint)

    def _settings(self) -> ReaderSettings | None:
        keys = {
            name.removeprefix(PREFIX): value
            for name, value in self.given.items()
            if name.startswith(PREFIX) and name not in NOT_HERE
        }
        try:
            return read_settings(ReaderSettings, keys, prefix=PREFIX)
        except InvalidConfig as error:
            self.wrong += str(error).splitlines()
            return None

    def _one(self, name: str, read: Callable[[str], T], default: T) -> T:
        """Returns one option's value, or the default. If ``read`` raises ValueError, its text is noted as a problem."""
        text = self.given.get(name.lower())
        if text is None:
            return default
        try:
            return read(text.strip())
        except ValueError as error:
            self._refuse(name, *str(error).split("; ", 1))
            return default

    def _selection(self) -> Selection:
        chosen = [name for name in SELECTING if name.lower() in self.given]
        if len(chosen) != 1:
            said = f"{' and '.join(chosen)} are given" if chosen else "none is given"
            self._refuse(", ".join(SELECTING), said, "give exactly one of them")
            return Selection()
        return Selection(
            topics=self._one("subscribe", _names, ()),
            pattern=self._one("subscribePattern", _pattern, ""),
            partitions=self._one("assign", _assigned, ()),
        )

    def _limit(self, names: tuple[str, str, str], default: int) -> Limit:
        reads: tuple[Callable[[str], Any], ...] = (_time, _by_partition, _offsets)
        for name, read in zip(names, reads, strict=True):
            if name.lower() not in self.given:
                continue
            found: Any = self._one(name, read, None)
            if name == names[0]:
                return Limit(name, time=found)
            if name == names[1]:
                return Limit(name, times=found)
            return Limit(name, offset=found) if isinstance(found, int) else Limit(name, offsets=found)
        return Limit(names[2], offset=default)


def _with_prefix() -> list[str]:
    return [f"{PREFIX}{field.alias}" for field in ReaderSettings.model_fields.values()]


# -- one value each: ValueError("problem; remedy") ---------------------------------------------------------------------


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not names:
        raise ValueError("names no topic; write topics with commas between them")
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression ({error}); Python's syntax counts, for the whole name") from None
    if not text:
        raise ValueError("is empty; write a regular expression for whole names, such as orders-.*")
    return text


def _json(text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON ({error}); write {example}") from None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"is no JSON object, or an empty one; write {example}")
    return found


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"orders": [0, 1]}, for instance'
    found: dict[TopicPartition, None] = {}
    for topic, partitions in _json(text, example).items():
        if not isinstance(partitions, list) or not partitions or not all(_is_number(one) for one in partitions):
            raise ValueError(f"must have a list of partitions for topic {topic}; write {example}")
        found |= dict.fromkeys(TopicPartition(topic, one) for one in partitions)
    return tuple(found)


def _by_partition(text: str, *, least: int = 0) -> dict[TopicPartition, int]:
    example = '{"orders": {"0": 23, "1": 42}}, for instance'
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json(text, example).items():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f"must have an object for topic {topic}; write {example}")
        for partition, value in partitions.items():
            if not _NUMBER.fullmatch(partition) or not _is_number(int(partition)) or not _is_whole(value, least):
                raise ValueError(f"{topic}-{partition} must have a whole number from {least} on; write {example}")
            found[TopicPartition(topic, int(partition))] = value
    return found


def _offsets(text: str) -> int | dict[TopicPartition, int]:
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    try:
        return _by_partition(text, least=EARLIEST)
    except ValueError as error:
        raise ValueError(f"{error}; or earliest, latest; in JSON, -2 is earliest and -1 latest") from None


def _time(text: str) -> int:
    if not _NUMBER.fullmatch(text) or not _is_whole(int(text)):
        raise ValueError("must be a time in ms since 1970; write digits alone")
    return int(text)


def _positive(text: str) -> int:
    if not _NUMBER.fullmatch(text) or not _is_whole(int(text), 1):
        raise ValueError("must be a whole number from 1 on; write digits alone")
    return int(text)


def _size(text: str) -> int:
    try:
        return Size(minimum=KIB, maximum=1 << 40).read(text)
    except ValueError:
        raise ValueError("must be a size of at least 1024 bytes; write 134217728 or 128MiB, for instance") from None


def _switch(text: str) -> bool:
    return _choice("true", "false")(text) == "true"


def _choice(*values: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(f"must be {' or '.join(values)}; write one of them")
        return text.lower()

    return read


def _is_whole(value: object, least: int = 0) -> bool:
    """Returns True for an int from ``least`` up to the largest offset or timestamp in Kafka's protocol (64 bits)."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 63


def _is_number(value: object) -> bool:
    """Returns True for an int that can be a partition's number."""
    return _is_whole(value) and value < 1 << 31  # type: ignore[operator]
