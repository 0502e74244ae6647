"""`load` and the models: every rule of the configuration, and what the operator is told when one is broken."""

import pickle

import pytest
from pydantic import ValidationError

from mirror.service.config import (
    DESTINATION_TOPIC_CONFIGS,
    ClusterSettings,
    Config,
    FlowNotChosen,
    FlowSettings,
    HostPort,
)
from mirror.service.config.resolve import group_settings, relay_settings
from tests.service.config.loading import AT_CLUSTER, AT_FLOW, CLUSTER, FLOW, Load, base


def test_the_least_configuration(loading: Load) -> None:
    config = loading(base())
    flow = config.enabled_flow()
    assert flow.name == "source->destination"
    assert flow.source.bootstrap_servers == (HostPort("s", 1),)
    assert ",".join(map(str, flow.destination.bootstrap_servers)) == "d:2"
    assert flow.settings is config.flows["source->destination"]
    assert flow.settings.topics == ("orders",)
    assert config.drain_timeout_ms == 15_000
    assert pickle.loads(pickle.dumps(config)) == config


def test_who_the_flow_is(loading: Load) -> None:
    """By its name, unless it is said; then identity, group and internal topic stay when a cluster's alias changes."""
    assert loading(base()).enabled_flow().id == "source->destination"
    config = loading(base(flow='flow.id: "west->east"'))
    assert config.enabled_flow().id == "west->east"
    assert relay_settings(config.enabled_flow(), config).flow == "west->east"
    assert group_settings(config.enabled_flow(), config).group_id == "mirror-west->east"
    for wrong in ("a b", "->east", "a->b->c", "x" * 201, "..\u00e4"):
        (error,) = loading.errors(base(flow=f'flow.id: "{wrong}"'))
        assert error.startswith(f"{FLOW}: {AT_FLOW}flow.id: must be at most 200 letters, digits, dots, dashes")
    text = base(top='  "destination->source": {topics: [a], enabled: false, flow.id: "source->destination"}')
    (error,) = loading.errors(text)
    assert "flow.id: is source->destination, and so is that of source->destination" in error


def test_python_names_are_not_yaml_keys(loading: Load) -> None:
    """`bootstrap_servers` is for Python; two spellings of a key in files would be one too many."""
    assert ClusterSettings(bootstrap_servers=(HostPort("h", 1),)).bootstrap_servers == (HostPort("h", 1),)
    assert loading.errors(base(cluster="client_id: me")) == [
        f"{CLUSTER}: {AT_CLUSTER}client_id: is unknown; did you mean client.id?"
    ]


def test_a_disabled_flow_is_checked_and_does_not_run(loading: Load) -> None:
    extra = '  "destination->source": {topics: [a], enabled: false'
    assert loading(base(top=extra + "}")).enabled_flow().name == "source->destination"
    (error,) = loading.errors(base(top=extra + ", settle.ms: 1}"))
    assert error.startswith("10: flows.destination->source.settle.ms: must be from")


def test_values_in_their_various_spellings(loading: Load) -> None:
    flow = loading(
        base(
            cluster='security.protocol: plaintext\n    socket.receive.buffer.bytes: "4MiB"',
            flow='fetch.max.bytes: 512 KiB\n    settle.ms: "2000"\n    enabled: "true"\n    fetch.raw.bytes:',
            top="log.level: WARNING",
        )
    ).enabled_flow()
    assert flow.settings.fetch_max_bytes == 524_288
    assert flow.settings.settle_ms == 2_000
    assert flow.settings.enabled is True
    assert flow.settings.fetch_raw_bytes is True  # nothing: as if left out
    assert flow.source.security_protocol == "PLAINTEXT"
    assert flow.source.socket_receive_buffer_bytes == 4 << 20


def test_what_just_agrees(loading: Load) -> None:
    text = "buffer.memory: 16MiB\n    fetch.min.bytes: 8MiB\n    fetch.max.wait.ms: 29999"
    flow = loading(base(cluster="reconnect.backoff.ms: 10000", flow=text)).enabled_flow()
    assert flow.settings.buffer_memory == 2 * flow.settings.fetch_max_bytes
    assert flow.source.reconnect_backoff_ms == flow.source.reconnect_backoff_max_ms


def test_the_two_switches_alone_suffice(loading: Load) -> None:
    text = "use.raw.bytes: false\n    fetch.raw.bytes: true\n    send.raw.bytes: true"
    settings = loading(base(flow=text)).enabled_flow().settings
    assert (settings.use_raw_bytes, settings.fetch_raw_bytes, settings.send_raw_bytes) == (False, True, True)
    (error,) = loading.errors(base(flow="fetch.raw.bytes: false\n    send.raw.bytes: false"))
    assert error.startswith(f"{FLOW + 1}: {AT_FLOW}send.raw.bytes: this program mirrors raw batches only;")


@pytest.mark.parametrize(
    ("topic", "selected"),
    [
        ("orders.v1", True),
        ("orders-v1", False),  # the dot of a name is a dot
        ("payments.eu", True),
        ("payments", False),
        ("old.payments.eu", False),  # matched whole
        ("payments.test", False),  # excluded
        ("payments.x.tmp", False),  # excluded by an expression
        ("__consumer_offsets", False),
        ("mirror-internal.checkpoints", False),
        ("c1", True),
    ],
)
def test_selects(topic: str, selected: bool) -> None:
    flow = FlowSettings(topics=("orders.v1", r"payments\..*", "[a-c]1"), exclude=("payments.test", r".*\.tmp"))
    assert flow.selects(topic) is selected


def test_internal_topics_are_not_selected_by_any_expression() -> None:
    flow = FlowSettings(topics=(".*",))
    assert flow.selects("anything")
    named = FlowSettings(topics=("orders.eu", "pay.*", "old"), exclude=("old",))
    assert named.selection.names == ("orders.eu",)
    assert not any(map(flow.selects, ("__transaction_state", "__x", "mirror-internal", "mirror-internal-map")))


def test_models_check_what_agrees_in_python_too() -> None:
    """Without a file: a Config that cannot run cannot be made either."""
    cluster = ClusterSettings(bootstrap_servers=(HostPort("h", 1),))
    with pytest.raises(ValidationError, match=r"flows\.a->b: there is no cluster b; known clusters: a"):
        Config(clusters={"a": cluster}, flows={"a->b": FlowSettings(topics=("x",))})
    with pytest.raises(ValidationError, match="frozen"):
        cluster.client_id = "other"


def test_created_topics_are_never_told_to_rewrite_batches() -> None:
    assert DESTINATION_TOPIC_CONFIGS == {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
    assert not DESTINATION_TOPIC_CONFIGS.keys() & set(FlowSettings(topics=("x",)).sync_topic_configs)


def test_any_free_port(loading: Load) -> None:
    config = loading(base(top='http.listen: "[::1]:0"'))
    assert config.http_listen == ("::1", 0)
    assert str(config.http_listen) == "[::1]:0"


def test_topics_by_another_name(loading: Load) -> None:
    """The first entry that matches the whole name counts; a topic without one keeps its name."""
    renames = "{'orders-(eu|us)': all-orders, '(.*)-v2': 'new.\\1', plain.name: b}"
    flow = loading(base(flow=f"offsets: mapped\n    topic.rename: {renames}")).enabled_flow().settings.selection
    names = ("orders-eu", "orders-us", "orders-eu-v2", "payments-v2", "plain.name", "plain-name")
    assert [flow.destination_of(name) for name in names] == [
        "all-orders",
        "all-orders",
        "new.orders-eu",
        "new.payments",
        "b",
        "plain-name",
    ]


def test_the_enabled_flows(loading: Load) -> None:
    """In the order of the file; one by its name, and without a name the only one."""
    config = loading(base(top='  "destination->source": {topics: [a], enabled: false}'))
    assert [flow.name for flow in config.enabled_flows()] == ["source->destination"]
    assert config.enabled_flow("source->destination") == config.enabled_flow()
    with pytest.raises(FlowNotChosen, match=r"^flow destination->source is not enabled \(enabled: false\); enabled: "):
        config.enabled_flow("destination->source")
    with pytest.raises(FlowNotChosen, match=r"^flow a->b is not in this configuration; enabled: source->destination$"):
        config.enabled_flow("a->b")


@pytest.mark.parametrize(
    ("given", "grown"),
    [
        ("", (32, 32, 96)),
        ("max.partition.fetch.bytes: 2MiB", (32, 0, 96)),
        ("fetch.max.bytes: 4MiB", (0, 0, 96)),
        ("buffer.memory: 20MiB", (0, 0, 0)),
    ],
)
def test_what_is_set_does_not_grow_over_a_long_link(loading: Load, given: str, grown: tuple[int, int, int]) -> None:
    config = loading(base(flow=given))
    made = relay_settings(config.enabled_flow(), config)
    assert (made.most_fetch_bytes, made.most_partition_fetch_bytes, made.most_buffer_memory) == tuple(
        mib << 20 for mib in grown
    )


def test_limits_of_topics(loading: Load) -> None:
    """The least that matches counts, and a wrong entry is refused with its place."""
    config = loading(
        base(flow='max.bytes.per.second: 8MiB\n    topic.max.bytes.per.second: {"log-.*": 2MiB, log-a: 64KiB}')
    )
    made = relay_settings(config.enabled_flow(), config)
    assert made.max_bytes_per_second == 8 << 20
    assert made.topic_rate is not None
    assert [made.topic_rate(topic) for topic in ("log-a", "log-b", "other")] == [64 << 10, 2 << 20, 0]
    assert relay_settings(loading(base()).enabled_flow(), config).topic_rate is None
    for wrong in ('{"(": 1MiB}', "{log: 12}", "{log: -1}", "{log: fast}"):
        (error,) = loading.errors(base(flow=f"topic.max.bytes.per.second: {wrong}"))
        assert "topic.max.bytes.per.second" in error
