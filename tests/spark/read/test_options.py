"""Options: each kind, what is wrong with each, and that all of it is said at once."""

import pickle
import re
from typing import Any

import pytest

from mirror.net.logs.leader_requests import EARLIEST, LATEST
from mirror.raw.errors import InvalidConfig
from mirror.raw.model import TopicPartition
from mirror.service.config.kinds import MIB
from mirror.spark.read.options import KNOWN, NOT_HERE, Limit, Selection, read_options
from tests.spark.read.stage import options

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_defaults() -> None:
    found = options()
    assert found.selection == Selection(topics=("t",))
    assert (found.start.offset, found.end.offset) == (EARLIEST, LATEST)
    assert (found.most_offsets, found.least_partitions, found.partition_bytes) == (None, 1, 128 * MIB)
    assert found.fail_on_data_loss
    assert found.include_batch
    assert not found.settings.committed
    assert found.settings.client_id == "mirror-spark"
    assert options(True).start.offset == LATEST


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"subscribe": "a, b,a"}, Selection(topics=("a", "b"))),
        ({"subscribePattern": "a.*|b"}, Selection(pattern="a.*|b")),
        ({"assign": '{"t": [1, 0, 1]}'}, Selection(partitions=(T1, T0))),
    ],
)
def test_what_is_read(given: dict[str, str], wanted: Selection) -> None:
    assert options(**given).selection == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"startingOffsets": "Earliest"}, Limit("startingOffsets", offset=EARLIEST)),
        ({"startingOffsets": '{"t": {"0": 5, "1": -2}}'}, Limit("startingOffsets", offsets={T0: 5, T1: -2})),
        ({"startingTimestamp": "7"}, Limit("startingTimestamp", time=7)),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 7}}'}, Limit("startingOffsetsByTimestamp", times={T0: 7})),
        ({"startingOffsets": "earliest", "startingTimestamp": "7"}, Limit("startingTimestamp", time=7)),
    ],
)
def test_where_it_begins(given: dict[str, str], wanted: Limit) -> None:
    assert options(**given).start == wanted


def test_where_it_ends() -> None:
    assert options(endingOffsets='{"t": {"0": -1}}').end == Limit("endingOffsets", offsets={T0: LATEST})
    assert options(endingTimestamp="9").end == Limit("endingTimestamp", time=9)


def test_names_in_any_case_and_all_of_the_rest() -> None:
    found = read_options(
        {
            "KAFKA.bootstrap.servers": "a:1,b:2",
            "SUBSCRIBE": "t",
            "startingoffsetsbytimestampstrategy": "LATEST",
            "minpartitions": "3",
            "maxBytesPerPartition": "4MiB",
            "failondataloss": "False",
            "includeBatch": "false",
            "kafka.isolation.level": "read_committed",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "me",
            "kafka.sasl.password": "secret",
        },
        streaming=False,
    )
    assert found.latest_if_later
    assert (found.least_partitions, found.partition_bytes) == (3, 4 * MIB)
    assert not found.fail_on_data_loss
    assert not found.include_batch
    assert found.settings.committed
    assert found.settings.security.sasl is not None
    assert options(True, maxOffsetsPerTrigger="9").most_offsets == 9
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffset": "earliest"}, "startingoffset: is unknown; did you mean startingOffsets?"),
        ({"kafka.ssl.ca.locaton": "x"}, "kafka.ssl.ca.locaton: is unknown; did you mean kafka.ssl.ca.location?"),
        ({"isolation.level": "x"}, "isolation.level: is unknown; did you mean kafka.isolation.level?"),
        ({"zzz": "x"}, "zzz: is unknown; known: assign, endingOffsets"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config: is a setting of Java clients"),
        ({"kafka.group.id": "g"}, "kafka.group.id: is not an option of this data source; remove it: there is no"),
        ({"includeHeaders": "true"}, "includeheaders: is not an option"),
        ({"kafka.fetch.max.bytes": "32MiB"}, "kafka.fetch.max.bytes: must be from 1024 bytes"),
        ({"kafka.client.rack": "r"}, "kafka.client.rack: is not supported"),
        ({"assign": '{"t": [0]}'}, "subscribe and assign are given; give exactly one of them"),
        ({"subscribe": " , "}, "subscribe: names no topic"),
        ({"startingOffsets": "first"}, "startingOffsets: is no JSON"),
        ({"startingOffsets": "latest"}, "startingOffsets: latest (-1) is not for read"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets: latest (-1) is not for read"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets: t-0 must have a whole number from -2 on"),
        ({"startingOffsets": '{"t": [0]}'}, "startingOffsets: must have an object for topic t"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "startingOffsets: t-x must have a whole number"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "startingOffsets: t-0 must have a whole number"),
        ({"startingOffsets": '{"t": {"0": 9223372036854775808}}'}, "startingOffsets: t-0 must have a whole number"),
        ({"startingOffsets": '{"t": {"2147483648": 1}}'}, "startingOffsets: t-2147483648 must have a whole number"),
        ({"startingOffsets": '{"t": {"0": 1, "00": 2}}'}, "startingOffsets: t-00 must have a whole number"),
        ({"startingOffsets": 100_000 * "["}, "startingOffsets: is no JSON (maximum recursion depth"),
        ({"startingTimestamp": "9223372036854775808"}, "startingTimestamp: must be a time in ms"),
        ({"minPartitions": 400 * "9"}, "minPartitions: must be a whole number from 1 on"),
        ({"startingOffsets": "{}"}, "startingOffsets: is no JSON object, or an empty one"),
        ({"endingOffsets": "earliest"}, "endingOffsets: earliest (-2) is not for read"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp: must be a time in ms"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "t-0 must have a whole number from 0 on"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy: must be error or latest"),
        ({"minPartitions": "0"}, "minPartitions: must be a whole number from 1 on"),
        ({"maxBytesPerPartition": "1"}, "maxBytesPerPartition: must be a size of at least 1024 bytes"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss: must be true or false"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger: is for readStream only"),
        ({"kafka.sasl.mechanism": "PLANE"}, "kafka.sasl.mechanism: must be "),
        ({"path": "here"}, "path: is not an option of this data source; call load() without a path"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(told)) as raised:
        read_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", **given}, streaming=False)
    assert str(raised.value).startswith("kafka-raw-batches: ")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"subscribePattern": "("}, "subscribePattern: is no regular expression"),
        ({"subscribePattern": ""}, "subscribePattern: is empty"),
        ({"assign": '{"t": []}'}, "assign: must have a list of partitions for topic t"),
        ({"assign": '{"t": [-1]}'}, "assign: must have a list of partitions for topic t"),
        ({}, "subscribe, subscribePattern, assign: none is given; give exactly one of them"),
    ],
)
def test_what_is_wrong_with_the_selection(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(told)):
        read_options({"kafka.bootstrap.servers": "a:1", **given}, streaming=False)


def test_all_of_it_is_said_at_once() -> None:
    with pytest.raises(InvalidConfig) as raised:
        read_options({"subscribe": "", "startingTimestamp": "x", "kafka.acks": "1"}, streaming=False)
    lines = str(raised.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "subscribe", "startingTimestamp", "kafka.bootstrap.servers", "kafka.acks",
    ]  # fmt: skip


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidConfig, match="endingOffsets: is for read only; remove it: a stream has no end"):
        options(True, endingOffsets="latest")


@pytest.mark.parametrize("given", [{"endingOffsets": "latest"}, {"maxOffsetsPerTrigger": "5"}])
def test_where_it_is_not_known_whether_it_is_a_stream(given: dict[str, Any]) -> None:
    """Spark asks for the schema of either."""
    read_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", **given}, streaming=None)


def test_no_option_is_known_and_refused() -> None:
    assert not set(KNOWN) & set(NOT_HERE)
    assert all(name == name.lower() for name in NOT_HERE)
