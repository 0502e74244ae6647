"""What is wrong in a configuration is said with line, key, problem and remedy: each rule, and all at once."""

from collections.abc import Mapping

import pytest

from tests.service.config.loading import AT_CLUSTER, AT_FLOW, CLUSTER, FLOW, TOP, Load, base


@pytest.mark.parametrize(
    ("where", "line", "expected"),
    [
        # Unknown keys.
        ({"flow": "fetch.max.byte: 1"}, FLOW, AT_FLOW + "fetch.max.byte: is unknown; did you mean fetch.max.bytes?"),
        ({"cluster": "settle.ms: 1"}, CLUSTER, AT_CLUSTER + "settle.ms: is unknown in a cluster; it belongs in a flow"),
        ({"flow": "log.level: info"}, FLOW, AT_FLOW + "log.level: is unknown in a flow; it belongs at the top of the"),
        (
            {"top": "request.timeout.ms: 1"},
            TOP,
            "request.timeout.ms: is unknown at the top of the file; it belongs in a",
        ),
        (
            {"top": "zzz: 1"},
            TOP,
            "zzz: is unknown; remove it; known at the top of the file: clusters, drain.timeout.ms",
        ),
        (
            {"cluster": "ssl.keystore.location: x"},
            CLUSTER,
            AT_CLUSTER
            + "ssl.keystore.location: is a setting of Java clients; write the certificate and its key as PEM",
        ),
        # Keys that stand twice.
        ({"flow": "topics: [x]"}, FLOW, AT_FLOW + "topics: stands twice, first in line 8; remove one of them"),
        ({"top": "flows: {}"}, TOP, "flows: stands twice, first in line 6; remove one of them"),
        # Wrong types.
        (
            {"flow": "enabled: maybe"},
            FLOW,
            AT_FLOW + "enabled: must be true or false, not 'maybe'; write true or false",
        ),
        ({"flow": "enabled: 1"}, FLOW, AT_FLOW + "enabled: must be true or false, not 1; write true or false"),
        ({"flow": "exclude: x"}, FLOW, AT_FLOW + "exclude: must be a list, not 'x'; write [one, another], or each"),
        ({"flow": "exclude: [x, 12]"}, FLOW, AT_FLOW + "exclude[1]: must be text, not 12; put it in quotes"),
        (
            {"flow": "settle.ms: {a: 1}"},
            FLOW,
            AT_FLOW + "settle.ms: must be a whole number of milliseconds, not a mapping",
        ),
        (
            {"flow": "settle.ms:"},
            FLOW,
            AT_FLOW + "settle.ms: must be a whole number of milliseconds, not nothing; write",
        ),
        ({"flow": "settle.ms: 1.5e3"}, FLOW, AT_FLOW + "settle.ms: must be a whole number of milliseconds, not 1.5e3;"),
        ({"flow": "settle.ms: true"}, FLOW, AT_FLOW + "settle.ms: must be a whole number of milliseconds, not true;"),
        (
            {"flow": "fetch.max.bytes: 4MB"},
            FLOW,
            AT_FLOW + "fetch.max.bytes: must be a size in bytes, not '4MB'; write 4",
        ),
        ({"cluster": "client.id: [a]"}, CLUSTER, AT_CLUSTER + "client.id: must be text, not a list; put it in quotes"),
        # Out of range: the range and its unit.
        ({"flow": "settle.ms: 999"}, FLOW, AT_FLOW + "settle.ms: must be from 1000 ms to 86400000 ms, not 999; write"),
        (
            {"flow": "connections.per.broker: 65"},
            FLOW,
            AT_FLOW + "connections.per.broker: must be from 1 to 64, not 65; write a value in that range",
        ),
        (
            {"flow": "max.in.flight.requests.per.connection: 6"},
            FLOW,
            AT_FLOW + "max.in.flight.requests.per.connection: must be from 1 to 5, not 6; write",
        ),
        (
            {"flow": "replication.factor: 0"},
            FLOW,
            AT_FLOW + "replication.factor: must be from 1 to 32767, or -1, not 0;",
        ),
        (
            {"flow": "max.request.size: 101MiB"},
            FLOW,
            AT_FLOW
            + "max.request.size: must be from 1024 bytes (1KiB) to 104857600 bytes (100MiB), not '101MiB'; write",
        ),
        (
            {"cluster": "socket.send.buffer.bytes: -2"},
            CLUSTER,
            AT_CLUSTER
            + "socket.send.buffer.bytes: must be from 4096 bytes (4KiB) to 1073741824 bytes (1GiB), or -1, not -2",
        ),
        ({"top": "drain.timeout.ms: -1"}, TOP, "drain.timeout.ms: must be from 0 ms to 2147483647 ms, not -1; write"),
        (
            {"cluster": 'client.id: ""'},
            CLUSTER,
            AT_CLUSTER + "client.id: must be 1 to 249 printable characters, not '';",
        ),
        (
            {"cluster": 'client.id: "a\\tb"'},
            CLUSTER,
            AT_CLUSTER + "client.id: must be 1 to 249 printable characters, not",
        ),
        # Words.
        (
            {"flow": "offsets: exactly"},
            FLOW,
            AT_FLOW + "offsets: must be exact or mapped, not 'exactly'; write exact or",
        ),
        (
            {"flow": "topic.rename: {a: b}"},
            FLOW,
            AT_FLOW
            + "topic.rename: gives topics another name, and with offsets: exact they keep theirs; set offsets: mapp",
        ),
        (
            {"flow": "offsets: mapped\n    identity: strict"},
            FLOW + 1,
            AT_FLOW + "identity: strict needs offsets: exact: among others' batches the mirror knows its own by",
        ),
        *(
            ({"flow": f"offsets: mapped\n    topic.rename: {renames}"}, FLOW + 1, AT_FLOW + f"topic.rename: {told}")
            for renames, told in (
                ("{a: b/c}", 'gives topics that match "a" the name "'),
                ("{a: __b}", 'gives topics that match "a" the name "'),
                ("{'a(': b}", "has a key that is not a valid regular expression"),
                (
                    "{'(.*)': 'b\\2'}",
                    'gives topics that match "(.*)" the name "b\\2", which refers to a group that this expression does',
                ),
                ("[a]", "must be a mapping of keys and values"),
            )
        ),
        ({"flow": "identity: strict"}, FLOW, AT_FLOW + "identity: strict needs a source that is read uncommitted"),
        (
            {"top": "log.level: loud"},
            TOP,
            "log.level: must be debug or info or warning or error, not 'loud'; write debug",
        ),
        (
            {"cluster": "security.protocol: TLS"},
            CLUSTER,
            AT_CLUSTER + "security.protocol: must be PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL, not 'TLS'; write",
        ),
        # Topics.
        (
            {"flow": "exclude: ['a[']"},
            FLOW,
            AT_FLOW + "exclude[0]: 'a[' is not a valid regular expression (unterminated ",
        ),
        (
            {"flow": "exclude: ['.*']"},
            FLOW,
            AT_FLOW + "exclude: it leaves out all that topics has, so that nothing is mirrored; take out what is to be",
        ),
        ({"flow": "groups: []"}, FLOW, AT_FLOW + 'groups: names no group; write ".*" for all groups, or remove'),
        (
            {"flow": "groups: ['a[']"},
            FLOW,
            AT_FLOW + "groups[0]: 'a[' is not a valid regular expression (unterminated ",
        ),
        ({"flow": "groups.exclude: ['']"}, FLOW, AT_FLOW + "groups.exclude[0]: '' is empty; write a group's name, or"),
        ({"flow": "exclude: ['']"}, FLOW, AT_FLOW + "exclude[0]: '' is empty; write a topic's name, or a regular"),
        (
            {"flow": "exclude: ['a, b']"},
            FLOW,
            AT_FLOW + "exclude[0]: 'a, b' is several names in one; write one list entry",
        ),
        # Topic configs.
        (
            {"flow": "sync.topic.configs: [retention.ms, compression.type]"},
            FLOW,
            AT_FLOW + "sync.topic.configs[1]: 'compression.type' is never copied: the destination has to keep batches",
        ),
        (
            {"flow": "sync.topic.configs: [a b]"},
            FLOW,
            AT_FLOW + "sync.topic.configs[0]: 'a b' is not the name of a topic config",
        ),
        (
            {"flow": "audit.accept: [unverifiable, extra]"},
            FLOW,
            AT_FLOW + "audit.accept[1]: 'extra' is nothing that an audit can pass; write unverifiable",
        ),
        (
            {"flow": "audit.metrics.file: audit.txt"},
            FLOW,
            AT_FLOW + "audit.metrics.file: does not end in .prom, and node_exporter reads no other files; name it so",
        ),
        # KIP-712's switches.
        (
            {"flow": "send.raw.bytes: false"},
            FLOW,
            AT_FLOW
            + "send.raw.bytes: fetch.raw.bytes and send.raw.bytes go together, and one is on and the other off;",
        ),
        (
            {"flow": "fetch.raw.bytes: false"},
            FLOW,
            AT_FLOW
            + "send.raw.bytes: fetch.raw.bytes and send.raw.bytes go together, and one is on and the other off;",
        ),
        (
            {"flow": "use.raw.bytes: false"},
            FLOW,
            AT_FLOW
            + "send.raw.bytes: this program mirrors raw batches only; set use.raw.bytes to true, or use MirrorMaker",
        ),
        # What has to agree; a default that does not is shown where the other one stands.
        (
            {"flow": "fetch.max.bytes: 20MiB"},
            FLOW,
            AT_FLOW + "buffer.memory: must be at least 2 x fetch.max.bytes (40MiB), and is 18MiB; raise it, or lower",
        ),
        (
            {"flow": "buffer.memory: 15MiB"},
            FLOW,
            AT_FLOW + "buffer.memory: must be at least 2 x fetch.max.bytes (16MiB), and is 15MiB; raise it, or lower",
        ),
        (
            {"flow": "fetch.min.bytes: 9MiB"},
            FLOW,
            AT_FLOW + "fetch.min.bytes: must be at most fetch.max.bytes (8MiB), and is 9MiB; lower it, or raise",
        ),
        (
            {"cluster": "reconnect.backoff.ms: 20000"},
            CLUSTER,
            AT_CLUSTER + "reconnect.backoff.max.ms: must be at least reconnect.backoff.ms (20000 ms), and is 10000 ms;",
        ),
        (
            {"cluster": "request.timeout.ms: 500"},
            CLUSTER,
            AT_FLOW
            + "fetch.max.wait.ms: must be less than request.timeout.ms of source (500 ms), and is 500 ms: every",
        ),
        ({"flow": "enabled: false"}, 6, "flows: no flow is enabled; set enabled: true on one of them"),
        # Plain YAML that means nothing here.
        ({"flow": "settle.ms: !!int x"}, FLOW, AT_FLOW + "settle.ms: is no int; write a plain value"),
        (
            {"flow": "settle.ms: !secret x"},
            FLOW,
            AT_FLOW + "settle.ms: has a tag that means nothing here (!secret); write",
        ),
    ],
)
def test_one_error(loading: Load, where: Mapping[str, str], line: int, expected: str) -> None:
    (error,) = loading.errors(base(**where))
    assert error.startswith(f"{line}: {expected}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clusters: {}\nflows: {}\n", ["1: clusters: names no cluster;", "2: flows: names no flow;"]),
        ("clusters: {}\nflows: {a->b: {topics: [x]}}\n", ["1: clusters: names no cluster;"]),
        ("clusters: x\nflows:\n", ["1: clusters: must be a mapping", "2: flows: must be a mapping"]),
        ("drain.timeout.ms: 1\n", ["1: clusters: is required; add it;", "1: flows: is required; add it;"]),
        (
            'clusters:\n  a: {client.id: x}\n  b:\nflows:\n  "a->b": {}\n',
            [
                "2: clusters.a.bootstrap.servers: is required;",
                "3: clusters.b: must be a mapping of keys and values, not nothing;",
                "5: flows.a->b.topics: is required;",
            ],
        ),
        # A cluster whose alias is spelt like one of our attributes is still a cluster.
        (
            base(top="#").replace("  destination:", "  client_id: x\n  destination:"),
            ["5: clusters.client_id: must be a"],
        ),
        (base().replace("[orders]", "[]"), ["8: flows.source->destination.topics: names no topic; write at least one"]),
        (base().replace("[orders]", "[__x]"), ["8: flows.source->destination.topics[0]: '__x' is an internal topic"]),
        (base().replace("->", "-"), ["7: flows.source-destination: is not the name of a flow; write"]),
        (
            base().replace('"source->', '"sorce->'),
            ["7: flows.sorce->destination: there is no cluster sorce; did you mean"],
        ),
        (
            base().replace("->destination", "->zz"),
            ["7: flows.source->zz: there is no cluster zz; known clusters: dest"],
        ),
        (base().replace("->destination", "->source"), ["7: flows.source->source: source and destination are the same"]),
        (
            base().replace("d:2", "x:9,s:1"),
            ["7: flows.source->destination: source and destination are the same cluster:"],
        ),
        (
            base().replace("  destination", "  a b: {bootstrap.servers: 'x:1'}\n  destination"),
            ["5: clusters.a b: is not an alias of a cluster; use letters"],
        ),
    ],
)
def test_structure(loading: Load, text: str, expected: list[str]) -> None:
    errors = loading.errors(text)
    assert [error[: len(start)] for error, start in zip(errors, expected, strict=True)] == expected


def test_all_errors_at_once_in_the_order_of_the_file(loading: Load) -> None:
    """1. Errors of every layer: YAML structure, look-up, type, range, agreement, unknown names.
    2. All are told, once each, sorted by line."""
    text = base(
        cluster="client.id: ${env:NOPE}\n    request.timeout.ms: ten\n    request.timeout.ms: 9",
        flow="send.raw.bytes: false\n    offsets: exactly\n    exclude: ['[', ']', '(']",
        top='  "source->sink": {topics: [x], enabled: false}\n1: 2\ndrain.timout.ms: 3',
    )
    places = [": ".join(error.split(": ")[:2]) for error in loading.errors(text)]
    assert places == [
        "4: clusters.source.client.id",
        "5: clusters.source.request.timeout.ms",
        "6: clusters.source.request.timeout.ms",
        "11: flows.source->destination.send.raw.bytes",
        "12: flows.source->destination.offsets",
        "13: flows.source->destination.exclude[0]",
        "13: flows.source->destination.exclude[1]",
        "13: flows.source->destination.exclude[2]",
        "14: flows.source->sink",
        "15: 1",
        "16: drain.timout.ms",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("workers: 0", "workers: must be from 1 to 256, not 0; write a value in that range"),
        (
            "group.protocol: eager",
            "group.protocol: must be classic or consumer, not 'eager'; write classic or consumer",
        ),
        ("session.timeout.ms: 1", "session.timeout.ms: must be from 1000 ms to 2147483647 ms, not 1; write"),
        ("http.listen: 9464", "http.listen: 9464 is not host:port"),
        ('http.listen: "localhost:70000"', "is an address with a port outside 0 to 65535"),
    ],
)
def test_settings_of_the_service(loading: Load, line: str, message: str) -> None:
    (found,) = loading.errors(base(top=line))
    assert message in found
