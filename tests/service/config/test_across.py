"""Rules across flows: who may write a topic, what would go round, and who is in which group."""

import json
from typing import Any

import pytest

from mirror.service.config import ConfigError
from mirror.service.config.resolve import REBATCHED_BELOW
from mirror.service.selection import Selection
from tests.service.config.loading import Load

CLUSTERS = {
    "west": {"bootstrap.servers": "w:1"},
    "east": {"bootstrap.servers": "e:1"},
    "hub": {"bootstrap.servers": "h:1,h:2"},
    "hub-too": {"bootstrap.servers": "h:2"},
}
MAPPED = {"offsets": "mapped"}
CARRIED: dict[str, Any] = {**MAPPED, "sync.group.offsets.enabled": True}
IN_STEP = {"sync.topic.configs.enabled": True}
PREFIX = MAPPED | {"replication.policy": "prefix"}


def text(flows: dict[str, dict[str, Any]], **top: object) -> str:
    rest = {key.replace("_", "."): value for key, value in top.items()}
    return json.dumps(
        {"clusters": CLUSTERS, "flows": {name: {"topics": ["a"]} | flow for name, flow in flows.items()}} | rest
    )


@pytest.mark.parametrize(
    "flows",
    [
        {"west->hub": {}, "west->east": {}},
        {"west->hub": {}, "east->hub": {"topics": ["b"]}},
        {"west->hub": {"topics": [".*"], "exclude": ["a"]}, "east->hub": {}},
        {"west->hub": {"topics": ["x.*"]}, "east->hub": {"topics": ["y.*"]}},
        {"west->hub": MAPPED, "east->hub": MAPPED},
        {"west->hub": MAPPED | IN_STEP, "east->hub": MAPPED},
        {"west->hub": MAPPED | IN_STEP, "east->hub": PREFIX | IN_STEP},
        {"west->hub": CARRIED, "east->hub": MAPPED},
        {"west->hub": CARRIED, "east->hub": CARRIED | PREFIX},
        {"west->hub": CARRIED, "east->hub": CARRIED | {"topics": ["b"]}},
        {"west->hub": CARRIED, "west->east": CARRIED},
        {"west->hub": CARRIED | {"groups": ["g"]}, "east->hub": CARRIED | {"groups": ["h"]}},
        {"west->hub": CARRIED | {"groups": ["g.*"]}, "east->hub": CARRIED | {"groups.exclude": ["g.*"]}},
        {"west->hub": CARRIED | {"groups": ["g.*"]}, "east->hub": CARRIED | {"groups": ["h"]}},
        {"west->hub": MAPPED | IN_STEP, "west->east": MAPPED | IN_STEP},
        {"west->hub": {}, "east->hub": PREFIX},
        {"west->hub": {}, "east->hub": {"enabled": False}},
        {"west->east": PREFIX | {"topics": [".*"]}, "east->west": PREFIX | {"topics": [".*"]}},
        {"west->east": {}, "east->west": {"topics": ["b"]}},
        {"west->east": {}, "east->hub": {}},
        {"west->east": {"group.id": "g"}, "east->hub": {"group.id": "g"}},
    ],
    ids=str,
)
def test_flows_that_go_together(loading: Load, flows: dict[str, dict[str, Any]]) -> None:
    """Fan-out, fan-in, both ways, chains: all of them run."""
    enabled = [name for name, flow in flows.items() if flow.get("enabled", True)]
    assert [flow.name for flow in loading(text(flows)).enabled_flows()] == enabled


@pytest.mark.parametrize(
    ("flows", "said"),
    [
        (
            {"west->hub": {}, "east->hub": {}},
            "flows.east->hub.topics: a would be written at cluster hub by flow west->hub as well, and a topic with "
            "offsets: exact has one writer; take it out of one of the two",
        ),
        ({"west->hub": {}, "east->hub-too": {}}, "flows.east->hub-too.topics: a would be written"),
        ({"west->hub": {}, "east->hub": MAPPED}, "flows.east->hub.topics: a would be written"),
        (
            {"west->hub": MAPPED | IN_STEP, "east->hub-too": MAPPED | IN_STEP},
            "flows.east->hub-too.sync.topic.configs.enabled: a at cluster hub-too would be kept in step by flow "
            "west->hub as well, after another source topic: each would undo what the other sets; set it to false",
        ),
        (
            {
                "west->hub": MAPPED | IN_STEP | {"topics": ["b.*"], "topic.rename": {"b.*": "a"}},
                "east->hub": MAPPED | IN_STEP,
            },
            "flows.east->hub.sync.topic.configs.enabled: a at cluster hub would be kept in step by flow west->hub",
        ),
        (
            {"west->hub": CARRIED, "east->hub-too": CARRIED},
            "flows.east->hub-too.sync.group.offsets.enabled: flow west->hub writes a at cluster hub-too as well, and "
            "offsets of groups (.*) would be carried there by both: a group would go to the later of two places, and "
            "skip records; set it to false in one of the two",
        ),
        (
            {"west->hub": CARRIED | {"groups": ["g", "h"]}, "east->hub": CARRIED | {"groups": ["h.*"]}},
            "and offsets of groups (h) would be carried there by both",
        ),
        (
            {"west->hub": CARRIED | {"groups": ["h.*"]}, "east->hub": CARRIED},
            "and offsets of groups (h.*) would be carried there by both",
        ),
        ({"west->hub": {"topics": [".*"]}, "east->hub": {}}, "flows.east->hub.topics: a would be written"),
        ({"west->hub": {"topics": ["x.*"]}, "east->hub": {"topics": ["x.*"]}}, "x.* would be written"),
        (
            {"west->hub": {"topics": ["east.a"]}, "east->hub": PREFIX},
            "flows.east->hub.topics: east.a would be written at cluster hub by flow west->hub as well",
        ),
        (
            {"west->hub": {}, "east->hub": MAPPED | {"topics": ["b.*"], "topic.rename": {"b.*": "a"}}},
            "flows.east->hub.topics: a would be written",
        ),
        (
            {"west->east": {}, "east->west": {}},
            "flows.east->west.topics: flow west->east copies a, and this flow would copy it back: a loop;",
        ),
        (
            {"west->east": MAPPED | {"topics": [".*"]}, "east->west": MAPPED | {"topics": [".*"]}},
            "copies .*, and this flow would copy it back",
        ),
        (
            {"west->east": PREFIX, "east->west": MAPPED | {"topics": [".*"], "topic.rename": {"west\\.(.*)": "\\1"}}},
            "flows.east->west.topics: flow west->east copies a, and",
        ),
        (
            {"west->east": PREFIX | {"topics": ["east.a"]}},
            "flows.west->east.topics[0]: east.a came from cluster east, by its prefix",
        ),
        (
            {"west->hub": {}} | {"west->east": {"flow.id": "west->hub"}},
            "flows.west->east.flow.id: is west->hub, and so",
        ),
        (
            {"west->east": {"group.id": "g"}, "west->hub": {"group.id": "g"}},
            "flows.west->hub.group.id: is g, and so is that of flow west->east, which has the same source",
        ),
        ({"west->east": {"group.id": "mirror-west->hub"}, "west->hub": {}}, "flows.west->hub.group.id: is mirror-west"),
        ({"west->east": {"enabled": False}}, "flows: no flow is enabled; set enabled: true on one of them"),
        (
            {"west->east": {"replication.policy": "prefix"}},
            "replication.policy: gives topics another name, and with off",
        ),
        ({"west->east": PREFIX | {"replication.policy.separator": "/"}}, "separator: must be letters, digits, dots"),
    ],
    ids=str,
)
def test_flows_that_do_not_go_together(loading: Load, flows: dict[str, dict[str, Any]], said: str) -> None:
    """Said with both flows, before anything runs."""
    found = loading.errors(text(flows))
    assert [error for error in found if said in error], found


def test_one_group_for_several_flows(loading: Load) -> None:
    """The name at the top is for one flow: in one group, each would take partitions from the other."""
    (error,) = loading.errors(text({"west->east": {}, "west->hub": {}}, group_id="g"))
    assert "group.id: names one group for 2 flows (west->east, west->hub), which would take each other's" in error
    config = loading(text({"west->east": {}, "west->hub": {"group.id": "h"}}, group_id="g"))
    assert [config.group_of(flow) for flow in config.enabled_flows()] == ["g", "h"]
    config = loading(text({"west->east": {}, "west->hub": {"flow.id": "x->y"}}))
    assert [config.group_of(flow) for flow in config.enabled_flows()] == ["mirror-west->east", "mirror-x->y"]


def test_prefixes(loading: Load) -> None:
    """As MirrorMaker 2 names topics, with whatever separator; what came from the destination is not selected."""
    flow = PREFIX | {"topics": [".*"], "topic.rename": {"plain": "other"}}
    found = loading(text({"west->east": flow})).enabled_flow().settings.selection
    names = {name: found.destination_of(name) for name in ("orders", "hub.orders", "plain")}
    assert names == {"orders": "west.orders", "hub.orders": "west.hub.orders", "plain": "other"}
    topics = (
        "orders",
        "hub.orders",
        "east.orders",
        "hub.east.orders",
        "hub.hub-too.east.x",
        "orders.east.v1",
        "easter",
    )
    assert [name for name in topics if found.selects(name)] == ["orders", "hub.orders", "orders.east.v1", "easter"]
    found = (
        loading(text({"west->east": flow | {"replication.policy.separator": "_"}})).enabled_flow().settings.selection
    )
    assert (found.destination_of("orders"), found.selects("east_orders")) == ("west_orders", False)
    assert found.selects("east.orders")
    # Exclusion wins over everything.
    assert not Selection((".*",), exclude=("a",), prefix="w.").selects("a")


def aliased(loading: Load, flows: dict[str, dict[str, Any]]) -> Any:
    """Loads mapped flows with prefixes, between clusters with dots in their aliases."""
    clusters = {name: {"bootstrap.servers": f"{name}:1"} for name in ("a", "a.b", "hub")}
    return loading(json.dumps({"clusters": clusters, "flows": {name: PREFIX | flow for name, flow in flows.items()}}))


@pytest.mark.parametrize(
    ("short", "long"),
    [(["b.t"], ["t"]), ([".*"], ["t"]), (["b.t"], [".*"]), (["b.t", "c"], ["t", "d.*"]), ([".*"], [".*"])],
)
def test_prefixes_that_merge_two_topics(loading: Load, short: list[str], long: list[str]) -> None:
    """Of a.b.t, nobody could say which topic it is a copy of."""
    with pytest.raises(ConfigError) as told:
        aliased(loading, {"a->hub": {"topics": short}, "a.b->hub": {"topics": long}})
    assert "flows.a.b->hub.replication.policy: prefix gives two topics the name a.b.t" in str(told.value)
    assert "give the clusters aliases without dots" in str(told.value)


@pytest.mark.parametrize(
    ("short", "long"), [(["t"], ["t"]), (["t"], [".*"]), (["b.t"], ["x"]), (["b.t.*"], ["x.*", "y"])]
)
def test_prefixes_that_merge_nothing(loading: Load, short: list[str], long: list[str]) -> None:
    """As far as the configuration shows."""
    aliased(loading, {"a->hub": {"topics": short}, "a.b->hub": {"topics": long}})


def test_the_longest_prefix_counts() -> None:
    """a.b.t came from a.b, not from a; and what a.b had from a is not mirrored back to a."""
    to_a = Selection((".*",), back="a.", others=("a.b.", "c."))
    assert to_a.selects("a.b.t")
    assert not to_a.selects("a.b.a.t")
    assert not to_a.selects("a.t")
    assert not to_a.selects("c.a.t")
    to_ab = Selection((".*",), back="a.b.", others=("a.",))
    assert not to_ab.selects("a.b.t")
    assert to_ab.selects("a.t")


LETTERS = {"oversize.record": "deadletter", "oversize.record.topic": "letters"}


@pytest.mark.parametrize(
    ("flows", "said"),
    [
        ({"west->hub": LETTERS | {"topics": [".*"]}}, "which flow west->hub copies into at cluster hub"),
        ({"west->hub": LETTERS, "east->hub-too": {"topics": ["letters"]}}, "which flow east->hub-too copies into"),
    ],
)
def test_no_exact_flow_copies_into_a_dead_letter_topic(
    loading: Load, flows: dict[str, dict[str, Any]], said: str
) -> None:
    with pytest.raises(ConfigError) as told:
        loading(text(flows))
    assert "flows.west->hub.oversize.record.topic: is letters, " in str(told.value)
    assert said in str(told.value)


@pytest.mark.parametrize(
    "flows",
    [
        {"west->hub": LETTERS | {"topics": [".*"], "exclude": ["letters"]}},
        {"west->hub": LETTERS, "east->hub": MAPPED | {"topics": ["letters"]}},
        {"west->hub": LETTERS, "hub->east": {"topics": ["letters"]}},
    ],
    ids=str,
)
def test_others_may_use_it(loading: Load, flows: dict[str, dict[str, Any]]) -> None:
    assert len(loading(text(flows)).enabled_flows()) == len(flows)


@pytest.mark.parametrize("policy", ["drop", "deadletter"])
@pytest.mark.parametrize(
    ("also", "said"),
    [
        ({"offsets": "mapped"}, "needs offsets: exact"),
        ({"identity": "strict", "isolation.level": "read_uncommitted"}, "needs identity: stamped"),
        ({"deep.path.enable": False}, "needs deep.path.enable: true"),
    ],
)
def test_records_are_passed_over_where_batches_are_cut(
    loading: Load, policy: str, also: dict[str, Any], said: str
) -> None:
    topic = {"oversize.record.topic": "letters"} if policy == "deadletter" else {}
    with pytest.raises(ConfigError, match=said):
        loading(text({"west->hub": {"oversize.record": policy} | topic | also}))
    assert loading(text({"west->hub": {"oversize.record": "halt"} | also})).enabled_flows()


@pytest.mark.parametrize(
    ("also", "said"),
    [
        ({"identity": "strict", "isolation.level": "read_uncommitted"}, "zstd needs identity: stamped"),
        ({"deep.path.enable": False}, "zstd needs deep.path.enable: true"),
    ],
)
def test_another_codec_needs_batches_that_are_opened(loading: Load, also: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        loading(text({"west->hub": {"compression.type": "zstd"} | also}))
    assert loading(text({"west->hub": {"compression.type": "source"} | also})).enabled_flows()
    assert loading(text({"west->hub": {"compression.type": "none"}})).enabled_flows()


@pytest.mark.parametrize("mode", ["auto", "deep"])
@pytest.mark.parametrize(
    ("also", "said"),
    [
        ({"offsets": "mapped"}, "needs offsets: exact"),
        ({"identity": "strict", "isolation.level": "read_uncommitted"}, "needs identity: stamped"),
        ({"deep.path.enable": False}, "needs deep.path.enable: true"),
    ],
)
def test_larger_batches_need_a_known_place(loading: Load, mode: str, also: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"{mode} {said}"):
        loading(text({"west->hub": {"mode": mode} | also}))
    assert loading(text({"west->hub": {"mode": "shallow"} | also})).enabled_flows()
    (flow,) = loading(text({"west->hub": {"mode": mode}})).enabled_flows()
    assert REBATCHED_BELOW["shallow"] == 0 < REBATCHED_BELOW["auto"] < REBATCHED_BELOW[flow.settings.mode] + 1


def test_what_is_the_same_bit_for_bit_has_no_other_times(loading: Load) -> None:
    strict = {"identity": "strict", "isolation.level": "read_uncommitted"}
    with pytest.raises(ConfigError, match="append needs identity: stamped"):
        loading(text({"west->hub": {"destination.timestamps": "append"} | strict}))
    assert loading(text({"west->hub": {"destination.timestamps": "keep"} | strict})).enabled_flows()
    assert loading(text({"west->hub": {"destination.timestamps": "append"}})).enabled_flows()


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        (
            {"oversize.record": "deadletter"},
            "oversize.record.topic: is missing, and oversize.record: deadletter needs it",
        ),
        ({"oversize.record.topic": "letters"}, "is set, and oversize.record: halt writes no dead letters"),
        ({"oversize.record": "drop", "oversize.record.topic": "x"}, "is set, and oversize.record: drop writes no dead"),
        (LETTERS | {"oversize.record.topic": "a b"}, "is 'a b', which is no topic for dead letters"),
        (LETTERS | {"oversize.record.topic": "__letters"}, "is '__letters', which is no topic for dead letters"),
        ({"oversize.record": "skip"}, "oversize.record: must be halt or drop or deadletter"),
    ],
)
def test_dead_letters_need_a_topic(loading: Load, flow: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as told:
        loading(text({"west->hub": flow}))
    assert said in str(told.value)
