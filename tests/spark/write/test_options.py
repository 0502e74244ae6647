"""The sink's options."""

import pytest

from mirror.spark.write.errors import SinkError
from mirror.spark.write.options import SinkOptions

GIVEN = {"kafka.bootstrap.servers": "k:1", "flow": "copy"}


def test_all() -> None:
    read = SinkOptions.read(
        {
            **GIVEN,
            "kafka.SASL.mechanism": "PLAIN",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.username": "me",
            "kafka.sasl.password": "not to be told",
            "checkpointLocation": "/nowhere",
            "topic": "there",
            "offsets": "Exact",
            "Source.Cluster.Id": "abc",
            "max.leading.filler": "12",
        }
    )
    assert (read.topic, read.exact, read.cluster_id, read.max_leading) == ("there", True, "abc", 12)
    assert "not to be told" not in repr(read)
    assert read.settings().delivery_timeout_ms == 120_000
    assert read.settings().security.protocol == "SASL_PLAINTEXT"


def test_what_is_not_given() -> None:
    read = SinkOptions.read(GIVEN)
    assert (read.flow, read.topic, read.exact, read.cluster_id, read.max_leading) == ("copy", "", False, "", 0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"flow": ""}, "flow: is required; name this copy"),
        ({"offsets": "same"}, "offsets: is same; exact or mapped"),
        ({"max.leading.filler": "-1"}, "max.leading.filler: is -1; give a number"),
        ({"max.leading.filler": "5"}, "max.leading.filler: is for offsets=exact; remove it"),
        ({"topics": "t"}, "topics: is unknown; did you mean topic[?]"),
        ({"somewhere": "t"}, "somewhere: is unknown; known: flow, topic, .* and kafka[.][*]"),
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers: "),
        ({"kafka.acks": "1"}, "acks: "),
        ({"kafka.delivery.timeout.ms": "1000"}, "delivery.timeout.ms: must be at least request.timeout.ms"),
    ],
)
def test_what_is_wrong(changes: dict[str, str], told: str) -> None:
    with pytest.raises(SinkError, match=rf"^options: (.*\n)*.*{told}(.*\n)*.*; correct the options"):
        SinkOptions.read({**GIVEN, **changes})
