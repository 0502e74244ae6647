"""Settings of Kafka's Java clients: ``a.KEY``, ``a.consumer.KEY``, ``a.producer.KEY`` and ``a.admin.KEY``."""

from collections.abc import Mapping

from mirror.service.importing.settings.rule import How, Rule, becomes, decide, each, not_needed

_FETCHES = "sizes of fetches adapt to the link and the backlog; setting fetch.max.bytes and its like here stops that"
_PRODUCES = "batches are sent as they were fetched, each acknowledged by all replicas in sync, and exactly once"
_SEAT = "the mirror's own group has settings of its own (session.timeout.ms, group.protocol)"
_JMX = "metrics are served at http.listen"
_RETRIES = "whatever fails for a while is tried again, without an end"
_CONNECTIONS = "the mirror keeps its connections by itself"

BOOTSTRAP = "bootstrap.servers"
ISOLATION = "isolation.level"
RESET = "auto.offset.reset"

CLUSTERS: Mapping[str, Rule] = {
    BOOTSTRAP: becomes("bootstrap.servers"),
    "client.id": becomes("client.id"),
    "client.rack": becomes("client.rack"),
    "request.timeout.ms": becomes("request.timeout.ms", How.NUMBER),
    "socket.connection.setup.timeout.ms": becomes("socket.connection.setup.timeout.ms", How.NUMBER),
    "reconnect.backoff.ms": becomes("reconnect.backoff.ms", How.NUMBER),
    "reconnect.backoff.max.ms": becomes("reconnect.backoff.max.ms", How.NUMBER),
    "receive.buffer.bytes": becomes("socket.receive.buffer.bytes", How.NUMBER),
    "send.buffer.bytes": becomes("socket.send.buffer.bytes", How.NUMBER),
}
"""Settings that become settings of a cluster; those of TLS and SASL are in ``protection.py``."""

FLOW_OF_SOURCE: Mapping[str, Rule] = {ISOLATION: becomes("isolation.level")}
"""Settings of a source's consumer that become settings of each flow from this source."""

CLIENTS: Mapping[str, Rule] = {
    RESET: decide(
        "a copy begins where the source's log begins: for another beginning, set start.from of the flows from there",
        unless=("earliest",), then="a copy begins where the source's log begins",
    ),
    "interceptor.classes": decide("no Java class can be plugged in", unless=("",), then="none"),
    "partitioner.class": decide("partition N is always copied into partition N", unless=("",), then="none"),
    "compression.type": not_needed(
        "batches keep the codec of the source; the flow's compression.type compresses anew, which costs many times "
        "the CPU"
    ),
    "buffer.memory": not_needed("something else here: what is fetched and not acknowledged yet; it adapts by itself"),
    "linger.ms": not_needed("something else here: how long the next fetch waits after a few fresh records; 20 ms"),
    **each(
        not_needed(_FETCHES),
        "fetch.max.bytes fetch.max.wait.ms fetch.min.bytes max.partition.fetch.bytes max.poll.records "
        "max.poll.interval.ms",
    ),
    **each(
        not_needed(_PRODUCES),
        "acks batch.size enable.idempotence max.in.flight.requests.per.connection max.request.size max.block.ms "
        "transaction.timeout.ms transactional.id transaction.two.phase.commit.enable compression.gzip.level "
        "compression.lz4.level "
        "compression.zstd.level partitioner.ignore.keys partitioner.adaptive.partitioning.enable "
        "partitioner.availability.timeout.ms internal.auto.downgrade.txn.commit",
    ),
    **each(not_needed(_RETRIES), "retries retry.backoff.ms retry.backoff.max.ms delivery.timeout.ms "
    "default.api.timeout.ms"),
    **each(
        not_needed(_SEAT),
        "group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms session.timeout.ms "
        "partition.assignment.strategy enable.auto.commit auto.commit.interval.ms internal.leave.group.on.close "
        "share.acknowledgement.mode share.acquire.mode",
    ),
    **each(
        not_needed(_JMX),
        "metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms "
        "auto.include.jmx.reporter "
        "enable.metrics.push",
    ),
    **each(
        not_needed(_CONNECTIONS),
        "client.dns.lookup connections.max.idle.ms metadata.max.age.ms metadata.max.idle.ms "
        "socket.connection.setup.timeout.max.ms "
        "metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms bootstrap.controllers",
    ),
    **each(
        not_needed("records are copied as bytes"),
        "key.deserializer value.deserializer key.serializer value.serializer check.crcs",
    ),
    **each(
        not_needed("the mirror creates topics by itself (topic.create), and internal topics are never copied"),
        "allow.auto.create.topics exclude.internal.topics internal.throw.on.fetch.stable.offset.unsupported",
    ),
    "config.providers": not_needed("${env:NAME} and ${file:PATH} are always there"),
    "security.providers": not_needed("there is no Java here: TLS is OpenSSL's"),
}  # fmt: skip
"""Settings that have no counterpart here."""
