"""What operators write in a hurry: habits from other programs of Kafka, and what each message says to write instead.

Each is one mistake, and one message: its line, its key, what is wrong, and what is allowed.
"""

import pytest

from tests.service.config.loading import AT_CLUSTER, AT_FLOW, CLUSTER, FLOW, TOP, Load, base

HOST_PORT = 'write "host:port", more of them separated by commas'
LISTEN = 'write "host:port", such as "127.0.0.1:9464", or "0.0.0.0:9464" for all interfaces'
SASL = "security.protocol: SASL_SSL\n    sasl.mechanism: "
MECHANISMS = "write PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512 or OAUTHBEARER or GSSAPI"
LOGIN = "\n    sasl.username: me\n    sasl.password: "
TLS = "security.protocol: SSL\n    "

SERVERS = [
    ("kafka-1", "'kafka-1' is not host:port"),
    ("kafka-1:9092;kafka-2:9092", "is not host:port"),
    ("kafka-1:9092 kafka-2:9092", "is not host:port"),
    ("SASL_SSL://kafka:9093", "is a URL, not host:port; security.protocol says the protocol"),
    ("[kafka-1:9092, kafka-2]", "address 2 of 2 is not host:port"),
    ("[{host: kafka-1, port: 9092}]", "address 1 of 1 is not host:port"),
    ("kafka-1:9092/", "is not host:port"),
    ("<broker>:9092", "is not host:port"),
    ("10.0.0:9092", "is not host:port: such a host is no IPv4 address"),
    ("300.0.0.1:9092", "is not host:port: such a host is no IPv4 address"),
    ("22:22", "is not host:port: such a host is no IPv4 address"),
    ("kafka-1:909200", "is an address with a port outside 1 to 65535"),
    ("9092", "must be addresses of brokers, not 9092"),
    ('"a:1,"', "address 2 of 2 is not host:port"),
    ("“kafka-1:9092”", "is not host:port"),
]


@pytest.mark.parametrize(("written", "problem"), SERVERS)
def test_bootstrap_servers(loading: Load, written: str, problem: str) -> None:
    (error,) = loading.errors(base().replace('"s:1"', written))
    assert error.startswith(f"3: {AT_CLUSTER}bootstrap.servers: ")
    assert problem in error
    assert HOST_PORT in error


# What stands in a cluster, the line within it, and the message.
IN_CLUSTER = [
    ("security.protocol: PLAIN", 0, "security.protocol: must be PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL, not"),
    ("security.protocol: sasl-ssl", 0, "security.protocol: must be PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL, n"),
    (SASL + "SCRAM-SHA512" + LOGIN + "x", 1, f"'SCRAM-SHA512'; {MECHANISMS}"),
    (SASL + "PLAINTEXT" + LOGIN + "x", 1, f"'PLAINTEXT'; {MECHANISMS}"),
    (SASL + "AWS_MSK_IAM", 1, f"'AWS_MSK_IAM'; {MECHANISMS}"),
    ("security.protocol: SASL_SSL\n    sasl.mechanisms: PLAIN", 1, "sasl.mechanisms: is a setting of Java clients; w"),
    (SASL + "PLAIN\n    sasl.user: me\n    sasl.password: x", 2, "sasl.user: is unknown; did you mean sasl.username?"),
    (SASL + "PLAIN\n    sasl.username: me\n    password: x", 3, "password: is unknown; did you mean sasl.password?"),
    (SASL + "PLAIN" + LOGIN + "12345", 3, "sasl.password: has to be text; put it in quotes, or write ${file:PATH}"),
    (SASL + "PLAIN" + LOGIN + '""', 3, "sasl.password: is missing: PLAIN needs it; write it, as ${file:PATH} or ${env"),
    (SASL + "PLAIN" + LOGIN + "${PASSWORD}", 3, "sasl.password: holds a ${...} that means nothing; write ${env:NAME}"),
    (SASL + "PLAIN" + LOGIN + "${env:NOPE}", 3, "sasl.password: environment variable NOPE is not set; set it, or"),
    (SASL + "PLAIN" + LOGIN + "${file:nope}", 3, "nope; name a readable text file, such as one below /run/credentials"),
    (SASL + "PLAIN" + LOGIN + "{{ password }}", 3, "sasl.password: holds {{...}}, a template that nothing has filled"),
    (SASL + "PLAIN\n    sasl.username: 42\n    sasl.password: x", 2, "sasl.username: must be text in one line, not 42"),
    (TLS + "ssl.ca.location: trust.jks", 1, "ssl.ca.location: names a keystore of Java or a PKCS #12 file, not PEM t"),
    (TLS + "ssl.ca.location: ~/ca.pem", 1, "ssl.ca.location: names no file that can be read; write an absolute path"),
    (TLS + "ssl.ca.pem: x", 1, "ssl.ca.pem: is a setting of Kafka clients; write the PEM text into a file, and its pa"),
    (TLS + "ssl.endpoint.identification.algorithm: ''", 1, "must be https or none, not ''; write https or none"),
    ("ssl.key.password: x", 0, "ssl.key.password: belongs to TLS, and security.protocol is PLAINTEXT; set security."),
    ("ssl.truststore.password: x", 0, "ssl.truststore.password: is a setting of Java clients; write the authorities"),
    ("ssl.enabled.protocols: TLSv1.2", 0, "ssl.enabled.protocols: is a setting of Java clients; remove it: TLS 1.2 or"),
    ("sasl.login.callback.handler.class: x", 0, "is a setting of Java clients; name a Python function that returns"),
    ("sasl.kerberos.keytab: x", 0, "sasl.kerberos.keytab: is a setting of Kafka clients; remove it: the ticket comes"),
    ("enable.ssl.certificate.verification: false", 0, "ssl.endpoint.identification.algorithm: none accepts any host'"),
    ("metadata.broker.list: a:1", 0, "metadata.broker.list: is a setting of Kafka clients; write bootstrap.servers"),
    ("send.buffer.bytes: 65536", 0, "send.buffer.bytes: is a setting of Java clients; write socket.send.buffer.bytes"),
    ("bootstrap_servers: x:1", 0, "bootstrap_servers: is unknown; did you mean bootstrap.servers?"),
    ("acks: all", 0, "acks: is a setting of Kafka clients; remove it: the mirror always waits for all replicas in sy"),
    ("compression.type: zstd", 0, "compression.type: is unknown in a cluster; it belongs in a flow"),
    ("request.timeout.ms: 30s", 0, "request.timeout.ms: must be a whole number of milliseconds, not '30s'; write digi"),
    ("request.timeout.ms: '30,000'", 0, "must be a whole number of milliseconds, not '30,000'; write digits alone,"),
    ("request.timeout.ms: 1:30", 0, "must be a whole number of milliseconds, not '1:30'; write digits alone, such as"),
    ("request.timeout.ms: 0o17", 0, "request.timeout.ms: must be from 100 ms to 2147483647 ms, not 0o17; write a val"),
    ("request.timeout.ms: 99999999999", 0, "must be from 100 ms to 2147483647 ms, not 99999999999; write a value in t"),
    ("client.rack: 1", 0, "client.rack: must be text, not 1; put it in quotes"),
    ("client.rack: ~", 0, "client.rack: must be text, not ~; put it in quotes"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "line", "expected"), IN_CLUSTER)
def test_in_a_cluster(loading: Load, written: str, line: int, expected: str) -> None:
    (error,) = loading.errors(base(cluster=written))
    assert error.startswith(f"{CLUSTER + line}: {AT_CLUSTER}")
    assert expected in error


ON_OR_OFF = "must be true or false, not"
# What stands in a flow, the line within it, and the message.
IN_FLOW = [
    *((f"enabled: {word}", 0, f"enabled: {ON_OR_OFF} '{word}'; write true or false")
      for word in ("yes", "on", "off", "y")),
    ('enabled: "True"', 0, f"enabled: {ON_OR_OFF} 'True'; write true or false"),
    ("enabled:", 0, f"enabled: {ON_OR_OFF} nothing; write true or false"),
    ("sync.topic.configs.enabled: [retention.ms]", 0, f"{ON_OR_OFF} a list; write true or false"),
    ("topics.blacklist: tmp", 0, "topics.blacklist: is a setting of MirrorMaker; write exclude, as a list of topics"),
    ("whitelist: a", 0, "whitelist: is a setting of MirrorMaker; write the topics, or regular expressions, as a list"),
    ("tasks.max: 4", 0, "tasks.max: is a setting of MirrorMaker; write workers: the number of processes"),
    ("replication.policy.class: x.Y", 0, "is a setting of MirrorMaker; write replication.policy: identity or prefix"),
    ("refresh.topics.interval.seconds: 60", 0, "MirrorMaker; write refresh.topics.interval.ms, in milliseconds"),
    ("emit.heartbeats.enabled: true", 0, "is a setting of MirrorMaker; remove it: nothing of the kind is written"),
    ("auto.offset.reset: latest", 0, "auto.offset.reset: is a setting of Kafka clients; remove it: the mirror decides"),
    ("producer.override.acks: all", 0, "is a setting of Connect; remove it: each setting has one name here"),
    ("topic: orders", 0, "topic: is unknown; did you mean topics?"),
    ("settle.ms: 5000ms", 0, "settle.ms: must be a whole number of milliseconds, not '5000ms'; write digits alone"),
    ("settle.ms: 5.0", 0, "settle.ms: must be a whole number of milliseconds, not 5.0; write digits alone"),
    ("settle.ms: -5", 0, "settle.ms: must be from 1000 ms to 86400000 ms, not -5; write a value in that range"),
    *((f"fetch.max.bytes: {size}", 0, f"must be a size in bytes, not '{size}'; write 4194304, 4096KiB or 4MiB")
      for size in ("8M", "8 GB", "0.5GiB", "8mib")),
    ("fetch.max.bytes: -1", 0, "must be from 1024 bytes (1KiB) to 1073741824 bytes (1GiB), not -1; write a value in"),
    ("max.bytes.per.second: 10MiB/s", 0, "must be a size in bytes, not '10MiB/s'; write 4194304, 4096KiB or 4MiB"),
    ("max.bytes.per.second: 1", 0, "must be from 1024 bytes (1KiB) to 68719476736 bytes (64GiB), or 0, not 1; write"),
    ("topic.max.bytes.per.second: 1MiB", 0, "must be a mapping of keys and values, not '1MiB'; write its keys below"),
    ("topic.max.bytes.per.second: {orders: 1}", 0, "topic.max.bytes.per.second.orders: must be from 1024 bytes (1KiB"),
    ("buffer.memory: 1MiB", 0, "must be at least 2 x fetch.max.bytes (16MiB), and is 1MiB; raise it, or lower fetch"),
    ("workers: auto", 0, "workers: must be a whole number, not 'auto'; write digits alone, such as 5"),
    ("replication.factor: three", 0, "replication.factor: must be a whole number, not 'three'; write digits alone"),
    ("replication.policy: prefix", 0, "gives topics another name, and with offsets: exact they keep theirs; set offse"),
    ("replication.policy: DefaultReplicationPolicy", 0, "must be identity or prefix, not 'DefaultReplicationPolicy'; "),
    ("offsets: mapped\n    topic.rename: orders=copy", 1, 'not \'orders=copy\'; write "key: value", with a blank aft'),
    ("offsets: mapped\n    topic.rename: {'(.*)': '$1-copy'}", 1, "which no topic can have; write letters, digits, do"),
    ("offsets: mapped\n    topic.rename: {orders: 5}", 1, "topic.rename.orders: must be text, not 5; put it in quotes"),
    ("sync.topic.configs: [retention.msec]", 0, "'retention.msec' is not the name of a topic config; did you mean ret"),
    ("sync.topic.configs: [cleanup.policy, log.retention.ms]", 0, "configs[1]: 'log.retention.ms' is not the name of"),
    ("sync.topic.configs: [partitions]", 0, "'partitions' is not the name of a topic config; write one such as reten"),
    ("sync.topic.configs: ['.*']", 0, "'.*' is not the name of a topic config; write a name such as retention.ms"),
    ("sync.topic.configs: {retention.ms: 1}", 0, "sync.topic.configs: must be a list, not a mapping; write [one, anot"),
    ("oversize.record: deadletter", 0, "oversize.record.topic: is missing, and oversize.record: deadletter needs it"),
    ("oversize.record: deadletter\n    oversize.record.topic: a/b", 1, "topic: is 'a/b', which is no topic for dead l"),
    ("oversize.record: dead-letter", 0, "must be halt or drop or deadletter, not 'dead-letter'; write halt or drop"),
    ("compression.type: ZSTD", 0, "must be source or none or gzip or snappy or lz4 or zstd, not 'ZSTD'; write source"),
    ("isolation.level: committed", 0, "must be read_committed or read_uncommitted, not 'committed'; write read_commi"),
    ("destination.timestamps: LogAppendTime", 0, "must be keep or append, not 'LogAppendTime'; write keep or append"),
    ("on.gap: skip", 0, "on.gap: must be halt or continue, not 'skip'; write halt or continue"),
    ("audit.accept: oversize", 0, "audit.accept: must be a list, not 'oversize'; write [one, another], or each item"),
    ("flow.id: source→destination", 0, "with one -> between them or none, not 'source→destination'; write the id that"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "line", "expected"), IN_FLOW)
def test_in_a_flow(loading: Load, written: str, line: int, expected: str) -> None:
    (error,) = loading.errors(base(flow=written))
    assert error.startswith(f"{FLOW + line}: {AT_FLOW}")
    assert expected in error


AT_THE_TOP = [
    *((f"http.listen: {written}", f"http.listen: {problem}", LISTEN) for written, problem in (
        ("':9464'", "':9464' is not host:port"),
        ("0.0.0.0", "'0.0.0.0' is not host:port"),
        ("'*:9464'", "'*:9464' is not host:port"),
        ("http://0.0.0.0:9464", "'http://0.0.0.0:9464' is a URL, not host:port; leave the protocol out"),
        ("999.1.1.1:9464", "'999.1.1.1:9464' is not host:port: such a host is no IPv4 address"),
        ("['127.0.0.1:9464']", "a list is not host:port"),
        ("off", "'off' is not host:port"),
    )),
    ("log.level: warn", "must be debug or info or warning or error, not 'warn'", "write debug or info or warning or"),
    ("topics: [a]", "topics: is unknown at the top of the file", "it belongs in a flow"),
    ("bootstrap.servers: a:1", "bootstrap.servers: is unknown at the top of the file", "it belongs in a cluster"),
    ("session.timeout.ms: 10s", "must be a whole number of milliseconds, not '10s'", "write digits alone, such as"),
    ("drain.timeout.ms: never", "must be a whole number of milliseconds, not 'never'", "write digits alone, such as"),
    ("version: 1", "version: is unknown", "remove it; known at the top of the file: clusters, drain.timeout.ms"),
    ("workers: 4 4", "workers: must be a whole number, not '4 4'", "write digits alone, such as 5"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "problem", "remedy"), AT_THE_TOP)
def test_at_the_top(loading: Load, written: str, problem: str, remedy: str) -> None:
    (error,) = loading.errors(base(top=written))
    assert error.startswith(f"{TOP}: ")
    assert f"{problem}; {remedy}" in error
