"""Settings of MirrorMaker 2's connectors: the records that a flow copies, and what is copied besides records."""

from collections.abc import Mapping

from mirror.service.importing.settings.rule import How, Rule, becomes, decide, each, not_needed

_NO_CHECKPOINTS = "there are no checkpoints: groups' offsets are carried over directly (sync.group.offsets.enabled)"
_NO_OFFSET_SYNCS = (
    "there is no topic of offset syncs: the internal topic, which is always at the destination, has what is needed"
)
_NO_HEARTBEATS = "there are no heartbeats: metrics and /-/ready say whether the flow works"
_NO_CONNECT = "this is not Kafka Connect, and records are copied as bytes"
_PLUGIN = "no Java class can be plugged in"

POLICY = "replication.policy.class"
SEPARATOR = "replication.policy.separator"
INTERNAL_SEPARATOR = "replication.policy.internal.topic.separator.enabled"
TOPICS, EXCLUDE, OLD_EXCLUDE = "topics", "topics.exclude", "topics.blacklist"
GROUPS_EXCLUDE, OLD_GROUPS_EXCLUDE = "groups.exclude", "groups.blacklist"
CONFIGS_EXCLUDE, OLD_CONFIGS_EXCLUDE = "config.properties.exclude", "config.properties.blacklist"
ENABLED = "enabled"

RENAMED = {
    OLD_EXCLUDE: EXCLUDE,
    OLD_GROUPS_EXCLUDE: GROUPS_EXCLUDE,
    OLD_CONFIGS_EXCLUDE: CONFIGS_EXCLUDE,
    "emit.heartbeats": "emit.heartbeats.enabled",
    "sync.group.offsets": "sync.group.offsets.enabled",
}
"""Names in earlier versions and in Kafka's own README -> current names. The first three work up to Kafka 3.9."""
IGNORED = {
    "emit.heartbeats": "MirrorMaker 2 has no such setting (emit.heartbeats.enabled is one)",
    "sync.group.offsets": "MirrorMaker 2 has no such setting, so it carried nothing over "
    "(sync.group.offsets.enabled is one)",
}
"""Settings that MirrorMaker 2's README mentions but that never existed -> an explanation."""

FLOWS: Mapping[str, Rule] = {
    # These six are handled together, in `make/flows.py`.
    TOPICS: becomes("topics", How.ENTRIES),
    EXCLUDE: becomes("exclude", How.ENTRIES),
    POLICY: becomes("replication.policy"),
    SEPARATOR: becomes("replication.policy.separator"),
    CONFIGS_EXCLUDE: becomes("sync.topic.configs"),
    ENABLED: becomes("enabled"),
    # Settings that the mirror has, too.
    "groups": becomes("groups", How.ENTRIES),
    GROUPS_EXCLUDE: becomes("groups.exclude", How.ENTRIES),
    "sync.group.offsets.enabled": becomes("sync.group.offsets.enabled", How.SWITCH),
    "sync.group.offsets.interval.seconds": becomes("sync.group.offsets.interval.ms", How.SECONDS),
    "sync.topic.acls.enabled": becomes("sync.topic.acls.enabled", How.SWITCH),
    "sync.topic.acls.interval.seconds": becomes("sync.topic.acls.interval.ms", How.SECONDS),
    "sync.topic.configs.enabled": becomes("sync.topic.configs.enabled", How.SWITCH),
    "refresh.topics.interval.seconds": becomes("refresh.topics.interval.ms", How.SECONDS),
    "replication.factor": becomes("replication.factor", How.NUMBER),
    # Settings that are different in the mirror.
    "sync.topic.configs.interval.seconds": not_needed("configs are looked at with each look for topics "
    "(refresh.topics.interval.ms)"),
    "refresh.topics.enabled": decide(
        "new topics and partitions are always looked for: list topics by name if no new ones are to be copied",
        unless=("true",), then="new topics and partitions are always looked for",
    ),
    "refresh.groups.enabled": decide(
        "groups are looked for whenever offsets are carried over: list groups by name if no new ones are wanted",
        unless=("true",), then="groups are looked for whenever offsets are carried over",
    ),
    "refresh.groups.interval.seconds": not_needed("groups are looked for whenever offsets are carried over"),
    "use.defaults.from": decide(
        "a config that the source topic has no value of its own for gets the destination's default, never the source's",
        unless=("target",), then="the same here",
    ),
    "tasks.max": not_needed("one process copies all partitions; raise `workers` if one core is not enough"),
    "offset.lag.max": not_needed(_NO_OFFSET_SYNCS),
    INTERNAL_SEPARATOR: not_needed("it names topics of MirrorMaker 2's own"),
    **each(not_needed(_NO_CHECKPOINTS), "emit.checkpoints.enabled emit.checkpoints.interval.seconds "
    "checkpoints.topic.replication.factor"),
    **each(
        not_needed(_NO_OFFSET_SYNCS),
        "emit.offset-syncs.enabled offset-syncs.topic.location offset-syncs.topic.replication.factor",
    ),
    **each(
        not_needed(_NO_HEARTBEATS),
        "emit.heartbeats.enabled emit.heartbeats.interval.seconds heartbeats.topic.replication.factor "
        "heartbeats.replication.enabled",
    ),
    **each(
        not_needed("metrics are served at http.listen, with the clusters' aliases as labels"),
        "add.source.alias.to.metrics metric.names.formats metric.reporters auto.include.jmx.reporter",
    ),
    **each(
        decide(f"{_PLUGIN}: write what this class does as topics, groups and configs", unless=(
            "org.apache.kafka.connect.mirror.defaulttopicfilter", "org.apache.kafka.connect.mirror.defaultgroupfilter",
            "org.apache.kafka.connect.mirror.defaultconfigpropertyfilter",
        ), then="the default, whose settings are taken over"),
        "topic.filter.class group.filter.class config.property.filter.class",
    ),
    "forwarding.admin.class": decide(
        f"{_PLUGIN}: create topics yourself and set topic.create: false, if another system has to create them",
        unless=("org.apache.kafka.clients.admin.forwardingadmin",), then="the default",
    ),
    "use.incremental.alter.configs": not_needed("configs of topics are always altered one by one"),
    "admin.timeout.ms": not_needed("requests end after the cluster's request.timeout.ms, and are tried again"),
    "consumer.poll.timeout.ms": not_needed("fetches wait as fetch.max.wait.ms says"),
    # Settings of every connector of Kafka Connect.
    **each(
        not_needed("names and classes of connectors follow from the flow here"),
        "name connector.class connector.plugin.version source.cluster.alias target.cluster.alias",
    ),
    **each(
        decide(f"{_NO_CONNECT}: use a program that opens records, if they have to be changed on "
        f"the way", unless=("",), then="none"),
        "transforms predicates",
    ),
    **each(
        decide(
            f"{_NO_CONNECT}: a converter that changes them has no equal",
            unless=("org.apache.kafka.connect.converters.bytearrayconverter",), then="bytes are copied as they are",
        ),
        "key.converter value.converter header.converter",
    ),
    **each(not_needed(_NO_CONNECT), "key.converter.plugin.version value.converter.plugin.version "
    "header.converter.plugin.version"),
    "errors.tolerance": decide(
        "nothing is skipped silently: a partition that cannot be copied halts. See oversize.record and on.gap for "
        "what may be passed over",
        unless=("none",), then="a partition that cannot be copied halts",
    ),
    **each(
        not_needed("whatever fails for a while is tried again without an end; what cannot be copied halts its "
        "partition"),
        "errors.log.enable errors.log.include.messages errors.retry.delay.max.ms errors.retry.timeout",
    ),
    **each(
        not_needed("every copy is exactly once"),
        "exactly.once.support transaction.boundary transaction.boundary.interval.ms offsets.storage.topic",
    ),
    **each(not_needed("there are no tasks of connectors"), "tasks.max.enforce config.action.reload"),
    "topic.creation.groups": not_needed("topics are created as they are at the source (sync.topic.configs), with "
    "replication.factor"),
}  # fmt: skip

CONNECTOR_PREFIXES: Mapping[str, Rule] = {
    **dict.fromkeys(("transforms.", "predicates."), not_needed("a part of transforms or predicates")),
    **dict.fromkeys(
        ("key.converter.", "value.converter.", "header.converter."), not_needed("a part of the converter's settings")
    ),
    "topic.creation.": not_needed(
        "topics are created as they are at the source (sync.topic.configs), with replication.factor"
    ),
    "errors.deadletterqueue.": not_needed(
        "it belongs to connectors that read; see oversize.record for dead letters here"
    ),
}
"""Prefixes of keys of connectors."""
