"""What a flow becomes: names, kind of offsets, what is left out, what goes with the records."""

from pathlib import Path

import pytest

from mirror.service.config import Config, ConfigError, FlowSettings
from mirror.service.importing.make.flows import Offsets
from tests.service.importing.importing import TWO, imported, loaded

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
OWN = ["mm2-offsets.a.internal", "a.checkpoints.internal", "mm2-offset-syncs.b.internal", "heartbeats", "x.replica"]
"""Topics that MirrorMaker 2 does not copy, or that are its own."""


def flow(folder: Path, text: str, *, offsets: Offsets | None = None) -> FlowSettings:
    """The flow a->b with this besides, as the program's loader has it."""
    return config(folder, TWO + text, offsets=offsets).flows["a->b"]


def config(folder: Path, text: str, *, offsets: Offsets | None = None) -> Config:
    return loaded(folder, imported(folder, text, offsets=offsets).text)


@pytest.mark.parametrize(
    ("text", "wanted", "offsets", "policy"),
    [
        ("", None, "mapped", "prefix"),
        ("", "exact", "exact", "identity"),
        ("", "mapped", "mapped", "prefix"),
        (IDENTITY, None, "exact", "identity"),
        (IDENTITY, "mapped", "mapped", "identity"),
        ("replication.policy.class = com.example.Own\n", None, "exact", "identity"),
        (IDENTITY.replace("org.apache", "io.strimzi"), None, "exact", "identity"),
    ],
)  # fmt: skip
def test_the_kind_of_offsets(text: str, wanted: Offsets | None, offsets: str, policy: str, tmp_path: Path) -> None:
    found = flow(tmp_path, text, offsets=wanted)
    assert (found.offsets, found.replication_policy) == (offsets, policy)


@pytest.mark.parametrize(
    ("text", "said"), [("", "get every record once more"), (IDENTITY, "delete them before the start")]
)
def test_what_to_beware_of_is_said(text: str, said: str, tmp_path: Path) -> None:
    """Topics that MirrorMaker 2 has filled: neither kind of offsets continues them."""
    assert any(said in each for each in imported(tmp_path, TWO + text).decisions)


def test_flows_into_one_cluster_with_names_kept_are_mapped(tmp_path: Path) -> None:
    text = f"{TWO.replace('a, b', 'a, b, c')}c.bootstrap.servers = c:1\nc->b.enabled = true\n{IDENTITY}"
    found = config(tmp_path, text)
    assert {each.offsets for each in found.flows.values()} == {"mapped"}
    assert not any(each.sync_topic_configs_enabled for each in found.flows.values())


def test_both_ways_with_the_separator(tmp_path: Path) -> None:
    found = config(tmp_path, f"{TWO}b->a.enabled = true\nreplication.policy.separator = _\n")
    assert [each.selection.prefix for each in found.flows.values()] == ["a_", "b_"]
    assert not found.flows["a->b"].selects("b_orders")


@pytest.mark.parametrize(
    "exclude", ["", "topics.exclude = secret.*\n", "topics.exclude =\n", "topics.blacklist = secret.*\n"]
)
@pytest.mark.parametrize("separator", [".", "_", "-"])
def test_topics_of_mirrormakers_own_are_left_out(exclude: str, separator: str, tmp_path: Path) -> None:
    """MirrorMaker 2 never copies internal topics, whatever is excluded; .replica by its default only."""
    found = flow(tmp_path, f"{exclude}replication.policy.separator = {separator}\n")
    own = [
        f"b{separator}heartbeats",
        f"mm2-offset-syncs{separator}b{separator}internal",
        *OWN[: None if exclude == "" else -1],
    ]
    assert [name for name in own if found.selects(name)] == []
    assert found.selects("orders")
    assert found.selects("secrets") == ("secret" not in exclude)


def test_names_of_internal_topics_may_have_dots_all_the_same(tmp_path: Path) -> None:
    dots = "replication.policy.internal.topic.separator.enabled = false\n"
    text = "replication.policy.separator = _\ntopics.exclude = mm2.*internal\n"
    names = ["x.checkpoints.internal", "x_checkpoints_internal"]
    assert [name for name in names if flow(tmp_path, text).selects(name)] == names[:1]
    assert [name for name in names if flow(tmp_path, text + dots).selects(name)] == names[1:]


def test_topics_by_default(tmp_path: Path) -> None:
    assert flow(tmp_path, "").topics == (".*",)


def test_internal_topics_are_taken_off_the_list(tmp_path: Path) -> None:
    assert flow(tmp_path, "topics = __consumer_offsets, orders\n").topics == ("orders",)


@pytest.mark.parametrize(
    "text",
    ["topics = __consumer_offsets\n", "topics = a{\n", "topics = ${env:TOPICS}\n", "topics =\n",
     "topics.exclude = [a&&b]\n", "topics.exclude = ${env:X}\n", "replication.policy.separator = /\n"],
)  # fmt: skip
def test_where_more_or_less_would_be_copied_nothing_is(text: str, tmp_path: Path) -> None:
    """The flow is off until it is decided on."""
    found = imported(tmp_path, TWO + text)
    assert "enabled: false" in found.text
    with pytest.raises(ConfigError, match="no flow is enabled"):
        loaded(tmp_path, found.text)


def test_what_has_the_same_meaning(tmp_path: Path) -> None:
    found = flow(
        tmp_path,
        "groups = billing, reports-.*\ngroups.exclude = x.*\nsync.group.offsets.enabled = true\n"
        "sync.group.offsets.interval.seconds = 7\nsync.topic.acls.enabled = false\n"
        "sync.topic.acls.interval.seconds = 9\nrefresh.topics.interval.seconds = 11\nreplication.factor = 3\n"
        "sync.topic.configs.enabled = false\na.consumer.isolation.level = read_uncommitted\n",
    )
    assert found.groups == ("billing", "reports-.*")
    assert found.groups_exclude == ("x.*",)
    assert (found.sync_group_offsets_enabled, found.sync_group_offsets_interval_ms) == (True, 7_000)
    assert (found.sync_topic_acls_enabled, found.sync_topic_acls_interval_ms) == (False, 9_000)
    assert (found.refresh_topics_interval_ms, found.replication_factor) == (11_000, 3)
    assert not found.sync_topic_configs_enabled
    assert found.isolation_level == "read_uncommitted"


def test_defaults_that_would_be_missed(tmp_path: Path) -> None:
    """MirrorMaker 2 keeps configs and ACLs in step unless it is told not to, and offsets only if it is told to."""
    found = flow(tmp_path, "")
    assert (found.sync_topic_configs_enabled, found.sync_topic_acls_enabled) == (True, True)
    assert not found.sync_group_offsets_enabled


def test_what_is_for_the_flows_own_consumer(tmp_path: Path) -> None:
    found = flow(
        tmp_path,
        "a.consumer.isolation.level = read_committed\na->b.source.consumer.isolation.level = read_uncommitted\n",
    )
    assert found.isolation_level == "read_uncommitted"


def test_configs_that_are_not_copied(tmp_path: Path) -> None:
    assert "retention.ms" not in flow(tmp_path, "config.properties.exclude = retention.*\n").sync_topic_configs
    text = imported(tmp_path, f"{TWO}config.properties.exclude = min.insync.replicas\n").text
    assert "config.properties.exclude, line 5: sync.topic.configs lists what is copied" in text


def test_groups_that_cannot_be_translated_turn_their_sync_off(tmp_path: Path) -> None:
    found = flow(tmp_path, "sync.group.offsets.enabled = true\ngroups.exclude = [a&&b], c.*\n")
    assert not found.sync_group_offsets_enabled
    found = flow(tmp_path, "sync.group.offsets.enabled = true\ngroups = [a&&b]\n")
    assert not found.sync_group_offsets_enabled
