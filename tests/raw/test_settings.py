"""The settings of raw clients: everything that is wrong is said at once, with the key and the remedy."""

from pathlib import Path

import pytest

from mirror.raw.errors import InvalidConfig
from mirror.raw.settings import ConsumerSettings, ProducerSettings, read_settings
from mirror.service.config.resolve import cluster_options

SERVERS = {"bootstrap.servers": "a:1,b:2"}


def test_kafkas_names() -> None:
    found = read_settings(
        ConsumerSettings,
        {
            **SERVERS,
            "client.id": "mine",
            "group.id": "g",
            "auto.offset.reset": "EARLIEST",
            "fetch.max.bytes": "1MiB",
            "session.timeout.ms": 6_000,
            "fetch.raw.bytes": True,
            "enable.auto.commit": False,
        },
    )
    assert (found.group_id, found.auto_offset_reset, found.fetch_max_bytes) == ("g", "earliest", 1 << 20)
    options = cluster_options(found)
    assert (options.bootstrap_servers, options.connection.client_id) == ("a:1,b:2", "mine")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"group.id": "g"}, "RawConsumer: bootstrap.servers: is required; add it"),
        ({**SERVERS, "fetch.raw.bytes": False}, "fetch.raw.bytes: is what this client does; for single records, use"),
        ({**SERVERS, "enable.auto.commit": True}, "enable.auto.commit: is not supported: .*; call commit"),
        ({**SERVERS, "client.rack": "a"}, "client.rack: is not supported: raw clients fetch from leaders; remove it"),
        ({**SERVERS, "group.idd": "a"}, r"group.idd: is unknown; did you mean group\.id\?"),
        ({**SERVERS, "topics": "a"}, "topics: is unknown; remove it; known: auto.offset.reset, "),
        ({**SERVERS, "ssl.truststore.location": "a"}, "is a setting of Java clients; write the authorities as PEM"),
        ({**SERVERS, "fetch.min.bytes": "9MiB"}, "fetch.min.bytes: must be at most fetch.max.bytes"),
        ({**SERVERS, "max.poll.interval.ms": 1_000}, "max.poll.interval.ms: must be at least session.timeout.ms"),
        ({**SERVERS, "auto.offset.reset": "smallest"}, "auto.offset.reset: must be latest or earliest or none"),
        ({**SERVERS, "sasl.mechanism": "PLAIN"}, "sasl.mechanism: belongs to authentication, and security.protocol is"),
        ({**SERVERS, "client.id": 5}, "client.id: must be text; give a str"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_wrong(config: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        read_settings(ConsumerSettings, config)


def test_all_at_once_and_no_secret() -> None:
    config = {**SERVERS, "buffer.memory": "x", "max.block.ms": -1, "sasl.password": "hush", "delivery.timeout.ms": 500}
    with pytest.raises(InvalidConfig) as caught:
        read_settings(ProducerSettings, config)
    lines = str(caught.value).splitlines()
    assert {line.split(": ")[1] for line in lines} == {
        "buffer.memory", "max.block.ms", "sasl.password", "delivery.timeout.ms",
    }  # fmt: skip
    assert all(line.startswith("RawProducer: ") for line in lines)
    assert "hush" not in str(caught.value)


def test_files_are_found_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text("-")
    monkeypatch.chdir(tmp_path)
    config = {**SERVERS, "security.protocol": "SSL", "ssl.ca.location": "ca.pem"}
    security = read_settings(ProducerSettings, config).security
    assert security.tls is not None
    assert security.tls.ca_file == str(tmp_path / "ca.pem")
