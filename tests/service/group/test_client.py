"""The group's client: its settings, and when it is made again."""

from pathlib import Path
from typing import Any

import pytest

from mirror.net.security.options import SaslOptions, Secret, SecurityOptions
from mirror.service.group import client
from mirror.service.group.client import GroupClients, consumer_config
from mirror.service.worker_settings import GroupSettings


def config(**changes: Any) -> dict[str, Any]:
    return consumer_config(
        GroupSettings(group_id="g", **changes),
        bootstrap="a:1",
        client_id="mirror",
        drain_timeout_ms=15_000,
        refresh_topics_interval_ms=600_000,
    )


def test_a_client_is_kept_while_secrets_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client reads its files once, so that a new one is made if they change; not before it can be made of them. The
    reason why it cannot be made is said."""
    monkeypatch.setattr(client, "LOOK_AT_FILES_S", 0.0)
    password, told = tmp_path / "password", list[str]()
    password.write_text("one")
    of_a_file = SaslOptions(mechanism="PLAIN", username="u", password=Secret("", str(password)))
    clients = GroupClients(config(), SecurityOptions(sasl=of_a_file), told.append)
    made = clients.make()
    assert made is not None
    made.close()
    assert not clients.outdated()
    password.unlink()
    assert not clients.outdated()
    assert clients.make() is None
    assert len(told) == 2
    assert all(str(password) in each for each in told)
    password.write_text("another")
    assert clients.outdated()


def test_kinds_of_membership() -> None:
    """What is the brokers' with the new protocol is not set; offsets are never committed by librdkafka itself."""
    classic, static = config(session_timeout_ms=6_000), config(instance_id="here-1")
    assert (classic["partition.assignment.strategy"], classic["session.timeout.ms"]) == ("cooperative-sticky", 6_000)
    assert classic["heartbeat.interval.ms"] == 2_000
    assert "group.instance.id" not in classic
    assert static["group.instance.id"] == "here-1"
    new = config(protocol="consumer")
    assert not {"partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"} & new.keys()
    assert all(each["enable.auto.commit"] is False for each in (classic, static, new))


def test_a_drain_fits_between_two_polls() -> None:
    long = consumer_config(
        GroupSettings(group_id="g"),
        bootstrap="a:1",
        client_id="m",
        drain_timeout_ms=600_000,
        refresh_topics_interval_ms=1_000,
    )
    assert long["max.poll.interval.ms"] > 600_000
