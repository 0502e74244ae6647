"""Mistakes in the names of topics, groups, flows and clusters, and in what stands where; and ten at once."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from mirror.cli.entry import main
from mirror.service.exits import EXIT_CONFIG
from tests.service.config.loading import AT_FLOW, FLOW, Load, base

NONE = "is no topic's name, and matches none: names have letters, digits, dots, dashes and underscores alone; "
GLOB = (
    'is a glob, it seems: as a regular expression, "*" repeats the character before it; write ".*" for any characters'
)
STAR = 'is a glob, and entries are regular expressions; write ".*" where a glob has "*"'
LIST = "write [one, another], or each item on a line of its own after a dash and a blank"

# What stands as the flow's topics; the message.
TOPICS = [
    ("orders", f"must be a list, not 'orders'; {LIST}"),
    ("\n      -orders", f"must be a list, not '-orders'; {LIST}"),
    ("\n      orders: 1", f"must be a list, not a mapping; {LIST}"),
    ("&orders", "begins with &, so that YAML takes its first word for the name of an anchor, which nothing uses; put"),
    ("[12]", "[0]: must be text, not 12; put it in quotes"),
    ("[~]", "[0]: must be text, not ~; put it in quotes"),
    ("[{name: orders}]", "[0]: must be text, not a mapping; put it in quotes"),
    ("['*']", "[0]: '*' is a glob, and entries are regular expressions; write \".*\" for all topics"),
    ("['*-orders']", f"[0]: '*-orders' {STAR}"),
    ("['*.orders']", f"[0]: '*.orders' {STAR}"),
    ("['orders*']", f"[0]: 'orders*' {GLOB}"),
    ("['orders-*']", f"[0]: 'orders-*' {GLOB}"),
    ("['orders\\.*']", f"[0]: 'orders\\.*' {GLOB}"),
    ("['a b']", f"[0]: 'a b' {NONE}write one list entry for each topic, without blanks"),
    ("[' orders']", f"[0]: ' orders' {NONE}remove the blanks around it"),
    ("['orders/eu']", f"[0]: 'orders/eu' {NONE}write it as the source lists it"),
    ("['/orders.*/']", f"[0]: '/orders.*/' {NONE}leave the slashes out"),
    ("['orders:v1']", f"[0]: 'orders:v1' {NONE}write it as the source lists it"),
    ("['örders']", f"[0]: 'örders' {NONE}write it as the source lists it"),
    ("['orders%']", f"[0]: 'orders%' {NONE}write \".*\" for any characters"),
    ("['orders-{eu,us}']", f"[0]: 'orders-{{eu,us}}' {NONE}write braces as a group"),
    ("['.*', '!tmp']", f"[1]: '!tmp' {NONE}write what is to be left out as an entry of exclude"),
    ("['$ORDERS']", f"[0]: '$ORDERS' {NONE}write ${{env:NAME}} for an environment variable"),
    ("['orders;payments']", "[0]: 'orders;payments' is several names in one; write one list entry for each topic"),
    ("['orders.**']", "[0]: 'orders.**' is not a valid regular expression (multiple repeat"),
    ("['__.*']", "[0]: '__.*' is for internal topics alone, and those are never mirrored; take it off the list"),
    ("['mirror-internal.*']", "[0]: 'mirror-internal.*' is for internal topics alone, and those are never mirrored; "),
]


@pytest.mark.parametrize(("written", "expected"), TOPICS)
def test_topics(loading: Load, written: str, expected: str) -> None:
    (error,) = loading.errors(base().replace("[orders]", written))
    assert error.startswith(f"8: {AT_FLOW}topics")
    assert expected in error


LEAVES_OUT = "exclude: it leaves out all that topics has, so that nothing is mirrored; take out what is to be mirrored"
NO_GROUP = (
    "groups.exclude: it leaves out all that groups has, so that no group's offsets are carried over; take out the"
)
CARRIED = "\n    sync.group.offsets.enabled: true"
ENTRIES = [
    ("exclude: [orders]", 0, LEAVES_OUT),
    ("exclude: ['ord.*']", 0, LEAVES_OUT),
    ("exclude: ['tmp*']", 0, f"exclude[0]: 'tmp*' {GLOB}"),
    ("exclude: ['*']", 0, "exclude[0]: '*' is a glob, and entries are regular expressions; write \".*\" for all topi"),
    ("exclude: ['a/b']", 0, f"exclude[0]: 'a/b' {NONE}"),
    ("groups: ['*']", 0, "groups[0]: '*' is a glob, and entries are regular expressions; write \".*\" for all groups"),
    ("groups: ['billing*']", 0, f"groups[0]: 'billing*' {GLOB}"),
    ("groups: billing", 0, f"groups: must be a list, not 'billing'; {LIST}"),
    (f"groups: [billing]\n    groups.exclude: ['bill.*']{CARRIED}", 1, NO_GROUP),
    (f"groups: ['.*']\n    groups.exclude: ['.*']{CARRIED}", 1, NO_GROUP),
    ("topic.max.bytes.per.second: {'*': 1MiB}", 0, "topic.max.bytes.per.second: has a key that is a glob, and entries"),
    ("topic.max.bytes.per.second: {'a b': 1MiB}", 0, "topic.max.bytes.per.second: has a key that is no topic's name"),
    ("offsets: mapped\n    topic.rename: {'*': x}", 1, "topic.rename: has a key that is a glob, and entries are regul"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "line", "expected"), ENTRIES)
def test_entries(loading: Load, written: str, line: int, expected: str) -> None:
    (error,) = loading.errors(base(flow=written))
    assert error.startswith(f"{FLOW + line}: {AT_FLOW}{expected}")


@pytest.mark.parametrize(
    ("topics", "exclude"),
    [("a.*", ".*"), ("orders-.*", "orders.*"), ("orders-.+", "orders-.*"), ("a|b", ".+"), ("a.*', 'b", "a.*', 'b")],
)
def test_expressions_that_leave_nothing(loading: Load, topics: str, exclude: str) -> None:
    text = base(flow=f"exclude: ['{exclude}']").replace("[orders]", f"['{topics}']")
    (error,) = loading.errors(text)
    assert error.startswith(f"9: {AT_FLOW}{LEAVES_OUT}")


FLOW_NAME = 'is not the name of a flow; write "source->destination", without blanks, with the aliases of two clusters'
FLOWS = [
    *("source→destination", "source=>destination", "source -> destination", "source<-destination", "->destination"),
    *("source>destination", "source to destination", "source:destination", "source->destination->source", "orders"),
    *("*->destination", "source–>destination"),
]


@pytest.mark.parametrize("name", FLOWS)
def test_names_of_flows(loading: Load, name: str) -> None:
    (error,) = loading.errors(base().replace("source->destination", name))
    assert error.startswith(f"7: flows.{name}: {FLOW_NAME}")


# What is replaced in the file, by what; line and message.
PLACES = [
    ("flows:", "flow:", "6: flow: is unknown; did you mean flows?"),
    ("flows:", "Flows:", "6: Flows: is unknown; did you mean flows?"),
    ("topics:", "Topics:", "8: flows.source->destination.Topics: is unknown; did you mean topics?"),
    ("bootstrap.servers: \"s", "bootstrap: \"s", "3: clusters.source.bootstrap: is unknown; did you mean bootstrap."),
    ("topics: [", "topics:[", "7: flows.source->destination: must be a mapping of keys and values, not 'topics:[orders]"
     "'; write \"key: value\", with a blank after the colon"),
    ("bootstrap.servers: \"s:1\"", "bootstrap.servers=s:1", "2: clusters.source: must be a mapping of keys and values"
     ", not 'bootstrap.servers=s:1'; write \"key: value\", with a blank after the colon"),
    ("    topics", "    - topics", "7: flows.source->destination: must be a mapping of keys and values, not a list;"),
    ("    topics", "\ttopics", "8: the file is not valid YAML: found character '\\t' that cannot start any token; in"),
    ("[orders]", "[*]", "8: the file is not valid YAML: expected alphabetic or numeric character, but found ']'; put"),
    ("[orders]", "[\"orders\\.v1\"]", "8: the file is not valid YAML: found unknown escape character '.'; write \\\\"),
    ("\"source->", "\"Source->", "7: flows.Source->destination: there is no cluster Source; did you mean source?"),
    ("  destination:", "  source:", "5: clusters.source: stands twice, first in line 2; remove one of them"),
]  # fmt: skip


@pytest.mark.parametrize(("here", "written", "expected"), PLACES)
def test_what_stands_where(loading: Load, here: str, written: str, expected: str) -> None:
    errors = loading.errors(base().replace(here, written))
    assert errors[0].startswith(expected)
    assert len(errors) == 1 or "  source:" in written  # without its second cluster, the flow is wrong as well


def test_a_key_beside_the_flows(loading: Load) -> None:
    """1. The flow has nothing then. 2. What stands beside it is told once, as what it is."""
    errors = loading.errors(base().replace("    topics", "  topics"))
    assert [error.partition("; ")[0] for error in errors] == [
        "7: flows.source->destination: must be a mapping of keys and values, not nothing",
        "8: flows.topics: belongs in a flow, and stands where flows are named",
    ]
    errors = loading.errors(base().replace("    bootstrap", "  bootstrap"))
    assert errors[1] == (
        "3: clusters.bootstrap.servers: belongs in a cluster, and stands where clusters are named; indent it further, "
        "below the one that it is for"
    )


TEN = """\
clusters:
  west:
    bootstrap.servers: "PLAINTEXT://west-1:9092"
    ssl.truststore.location: /etc/trust.jks
  east:
    bootstrap.servers: "east-1:9092"
    request.timeout.ms: 30s
    acks: all
flows:
  "west->east":
    topics: ["*", "a b"]
    enabled: yes
    fetch.max.bytes: 8MB
    sync.topic.configs: [retention.msec]
    oversize.record: skip
log.level: warn
http.listen: "9464"
"""


def test_ten_at_once(tmp_path: Path) -> None:
    """1. Twelve mistakes in one file. 2. `mirror validate` tells all, one a line, in their order, with exit code 78."""
    path = tmp_path / "mirror.yaml"
    path.write_text(TEN)
    result = CliRunner().invoke(main, ["validate", "-c", str(path)])
    assert result.exit_code == EXIT_CONFIG == 78
    assert result.stdout == ""
    told = [line for line in result.stderr.splitlines() if str(path) in line]
    assert [": ".join(line.partition(f"{path}:")[2].split(": ")[:2]) for line in told] == [
        "3: clusters.west.bootstrap.servers",
        "4: clusters.west.ssl.truststore.location",
        "7: clusters.east.request.timeout.ms",
        "8: clusters.east.acks",
        "11: flows.west->east.topics[0]",
        "11: flows.west->east.topics[1]",
        "12: flows.west->east.enabled",
        "13: flows.west->east.fetch.max.bytes",
        "14: flows.west->east.sync.topic.configs[0]",
        "15: flows.west->east.oversize.record",
        "16: log.level",
        "17: http.listen",
    ]
    assert all("; " in line for line in told)
