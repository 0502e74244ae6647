"""Keys that operators know from other programs -> what to write here instead."""

from collections.abc import Mapping

JAVA: Mapping[str, str] = {
    **dict.fromkeys(
        ("ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.type", "ssl.truststore.password"),
        "write the authorities as PEM text into a file, and its path as ssl.ca.location",
    ),
    **dict.fromkeys(
        ("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.keystore.key",
         "ssl.keystore.certificate.chain"),
        "write the certificate and its key as PEM text; name them in ssl.certificate.location and ssl.key.location",
    ),
    "sasl.jaas.config": "write what is in it as sasl.username and sasl.password, or as sasl.oauthbearer settings",
    "sasl.mechanisms": "write sasl.mechanism, with one name",
    **dict.fromkeys(
        ("ssl.protocol", "ssl.enabled.protocols", "ssl.provider", "security.providers",
         "ssl.trustmanager.algorithm", "ssl.keymanager.algorithm"),
        "remove it: TLS 1.2 or newer is agreed with the broker",
    ),
    **dict.fromkeys(
        ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.login.class"),
        "name a Python function that returns a token in sasl.oauthbearer.token.provider, or remove it",
    ),
    "client.dns.lookup": "remove it: all addresses of a name are tried",
    "receive.buffer.bytes": "write socket.receive.buffer.bytes",
    "send.buffer.bytes": "write socket.send.buffer.bytes",
}  # fmt: skip
"""Settings of Java's clients."""

_WRITES = "remove it: the mirror always waits for all replicas in sync, and tries again for as long as it takes"
_READS = "remove it: the mirror decides itself where it goes on, by what the destination holds"
_BYTES = "remove it: records are copied as bytes"
_CA = "write the PEM text into a file, and its path as ssl.ca.location"
_PEM = "write the PEM text into files; name them in ssl.certificate.location and ssl.key.location"
_KERBEROS = "remove it: the ticket comes from the environment (KRB5CCNAME, or a keytab in KRB5_CLIENT_KTNAME)"

_CLIENTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("acks", "enable.idempotence", "retries", "delivery.timeout.ms", "transactional.id", "max.block.ms"), _WRITES
    ),
    "batch.size": "remove it: batches are copied as they are; max.request.size in a flow bounds a request",
    **dict.fromkeys(
        ("auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms", "max.poll.records",
         "max.poll.interval.ms"),
        _READS,
    ),
    **dict.fromkeys(("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"), _BYTES),
    "metadata.broker.list": "write bootstrap.servers",
    "ssl.ca.pem": _CA,
    "ssl.certificate.pem": _PEM,
    "ssl.key.pem": _PEM,
    "enable.ssl.certificate.verification": "remove it; ssl.endpoint.identification.algorithm: none accepts any host's "
    "name, and ssl.ca.location names other authorities",
    **dict.fromkeys(("sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.kerberos.kinit.cmd"), _KERBEROS),
    "sasl.oauthbearer.config": "write sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url",
}  # fmt: skip
"""Settings of Kafka's clients, including librdkafka, that this configuration does not have."""

_TOPICS = "write the topics, or regular expressions, as a list in topics"
_EXCLUDE = "write exclude, as a list of topics and regular expressions"
_GROUPS = "write groups.exclude, as a list of groups and regular expressions"
_ALONE = "remove it: nothing of the kind is written"
_STATE = "write state.replication.factor: one internal topic at the destination has it all"
_ENDS = 'remove it: the flow\'s name, "source->destination", says the clusters'

_MIRROR_MAKER: Mapping[str, str] = {
    **dict.fromkeys(("whitelist", "topics.whitelist", "topics.regex", "topics.include"), _TOPICS),
    **dict.fromkeys(("blacklist", "topics.blacklist", "topics.exclude", "exclude.topics"), _EXCLUDE),
    **dict.fromkeys(("groups.blacklist", "exclude.groups"), _GROUPS),
    "exclude.internal.topics": "remove it: internal topics are never mirrored",
    **dict.fromkeys(("tasks.max", "num.streams"), "write workers: the number of processes"),
    "replication.policy.class": "write replication.policy: identity or prefix",
    **dict.fromkeys(("source.cluster.alias", "target.cluster.alias"), _ENDS),
    **dict.fromkeys(("emit.heartbeats.enabled", "emit.heartbeats.interval.seconds"), _ALONE),
    **dict.fromkeys(("emit.checkpoints.enabled", "transforms"), _ALONE),
    **dict.fromkeys(("offset-syncs.topic.replication.factor", "checkpoints.topic.replication.factor",
                     "offset.storage.topic", "offset.storage.replication.factor"), _STATE),
    **{f"{name}.seconds": f"write {name}.ms, in milliseconds" for name in (
        "refresh.topics.interval", "sync.group.offsets.interval", "sync.topic.acls.interval")},
}  # fmt: skip
"""Settings of MirrorMaker and of Connect."""

_PREFIXES = ("producer.override.", "consumer.override.", "producer.", "consumer.", "admin.")


def known_elsewhere(key: str) -> tuple[str, str] | None:
    """Returns problem and remedy for a key of another program; None if the key is not in these tables."""
    for whose, keys in (("Java clients", JAVA), ("Kafka clients", _CLIENTS), ("MirrorMaker", _MIRROR_MAKER)):
        if key in keys:
            return f"is a setting of {whose}", keys[key]
    if key.startswith(_PREFIXES):
        return "is a setting of Connect", "remove it: each setting has one name here, without producer. or consumer."
    return None
