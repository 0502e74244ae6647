"""The settings of a worker: from the configuration to the places that go by them."""

import json
from pathlib import Path

from mirror.service.config import load
from mirror.service.config.resolve import cluster_options, handover, relay_settings
from mirror.service.worker_settings import Handover
from tests.service.stage.running import config_text


def test_every_setting_reaches_its_place(tmp_path: Path) -> None:
    """What the configuration says is what connections and relay are told, in their units."""
    path = tmp_path / "mirror.yaml"
    cluster = {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "me",
        "request.timeout.ms": 7_000,
        "socket.connection.setup.timeout.ms": 900,
        "reconnect.backoff.ms": 11,
        "reconnect.backoff.max.ms": 222,
        "socket.receive.buffer.bytes": 65_536,
        "socket.send.buffer.bytes": 32_768,
    }
    flow = {
        "topics": ["orders", "pay\\..*"],
        "exclude": ["pay.x"],
        "fetch.max.bytes": "2MiB",
        "max.partition.fetch.bytes": "300KiB",
        "fetch.min.bytes": 5,
        "fetch.max.wait.ms": 123,
        "buffer.memory": "9MiB",
        "max.in.flight.requests.per.connection": 3,
        "connections.per.broker": 4,
        "max.request.size": "3MiB",
        "topic.create": False,
        "replication.factor": 2,
        "sync.topic.configs": ["retention.ms"],
        "refresh.topics.interval.ms": 4_444,
        "settle.ms": 1_500,
    }
    document = {
        "clusters": {"source": cluster, "destination": cluster | {"bootstrap.servers": "c:3"}},
        "flows": {"source->destination": flow},
        "drain.timeout.ms": 77,
        "group.instance.id": "here",
        "session.timeout.ms": 6_500,
        "offset.commit.interval.ms": 333,
        "progress.interval.ms": 250,
    }
    path.write_text(json.dumps(document))
    config = load(path)
    resolved = config.enabled_flow()
    options = cluster_options(resolved.source)
    assert options.bootstrap == (("a", 1), ("b", 2))
    assert (options.backoff_ms, options.backoff_max_ms) == (11, 222)
    connection = options.connection
    assert (connection.client_id, connection.request_timeout_s, connection.setup_timeout_s) == ("me", 7.0, 0.9)
    assert (connection.receive_buffer, connection.send_buffer) == (65_536, 32_768)
    settings = relay_settings(resolved, config)
    assert settings.flow == "source->destination"
    assert [settings.selects(name) for name in ("orders", "pay.a", "pay.x", "ordersx")] == [True, True, False, False]
    assert list(settings.wanted) == ["orders", "pay\\..*"]
    assert [bool(matches("orders")) for matches in settings.wanted.values()] == [True, False]
    assert (settings.fetch_max_bytes, settings.max_partition_fetch_bytes) == (2 << 20, 300 << 10)
    assert (settings.fetch_min_bytes, settings.fetch_max_wait_ms, settings.buffer_memory) == (5, 123, 9 << 20)
    assert (settings.max_in_flight, settings.connections_per_broker, settings.max_request_size) == (3, 4, 3 << 20)
    assert (settings.create_topics, settings.replication_factor) == (False, 2)
    assert settings.synced_configs == ("retention.ms",)
    assert (settings.refresh_topics_interval_ms, settings.settle_ms, settings.drain_timeout_ms) == (4_444, 1_500, 77)
    assert (settings.request_timeout_ms, settings.backoff_ms, settings.backoff_max_ms) == (7_000, 11, 222)
    assert settings.fixed_configs == {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
    told = handover(resolved, config)
    group = told.of_worker(5, 3).group
    assert (group.group_id, group.instance_id, group.protocol) == ("mirror-source->destination", "here-3", "classic")
    assert (group.session_timeout_ms, group.commit_interval_ms) == (6_500, 333)
    assert told.snapshot_interval_ms == 250


def test_what_is_handed_over_arrives(tmp_path: Path) -> None:
    """Through JSON and back nothing has changed, functions made anew apart."""
    path = tmp_path / "mirror.yaml"
    path.write_text(config_text("[::1]:1", "d:2", ["a", "b.*"], flow={"exclude": ["bx"]}))
    config = load(path)
    given = handover(config.enabled_flow(), config).of_worker(2, 2)
    found = Handover.unpack(json.loads(json.dumps(given.pack())))
    assert found.pack() == given.pack()
    assert (found.source, found.destination, found.group) == (given.source, given.destination, given.group)
    assert [found.relay.selects(name) for name in ("a", "b1", "bx", "__b")] == [True, True, False, False]
    assert list(found.relay.wanted) == ["a", "b.*"]
