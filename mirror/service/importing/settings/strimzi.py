"""The parts of Strimzi's ``KafkaMirrorMaker2`` resource that have no counterpart here; ``read/strimzi.py`` reads the
others. A part counts as one key, whatever is below it."""

from collections.abc import Mapping

from mirror.service.importing.settings.rule import Rule, decide, each, not_needed

_POD = "it belongs to pods and Java, and is no part of the configuration"
_MONITORING = "metrics are served at http.listen, logs go to stdout"
_NO_TASKS = "there are no connectors, whose tasks and offsets would have to be managed"

RESOURCE: Mapping[str, Rule] = {
    **each(not_needed("it is no part of the configuration"), "apiVersion kind metadata status"),
}
SPEC: Mapping[str, Rule] = {
    "connectCluster": not_needed("there is no cluster of Kafka Connect"),
    "replicas": not_needed("run the same command in as many pods: their workers share the partitions"),
    "rack": decide("client.rack of the source may be set to the zone of the pod, to fetch from followers nearby"),
    "externalConfiguration": decide("give the mirror's pod the same environment variables and files, if references "
    "need them"),
    "template": decide("environment variables and volumes in it have to be given to the mirror's pod as well, if "
    "references need them"),
    **each(
        not_needed(_POD),
        "version image resources jvmOptions livenessProbe readinessProbe clientRackInitImage plugins",
    ),
    **each(not_needed(_MONITORING), "logging metricsConfig metrics tracing jmxOptions"),
}  # fmt: skip
TARGET: Mapping[str, Rule] = each(
    not_needed("there is no Kafka Connect that would keep offsets, configs and status in topics of its own"),
    "groupId configStorageTopic offsetStorageTopic statusStorageTopic",
)
"""Additional keys of the target: in Strimzi's API v1, Kafka Connect runs at its cluster."""
CONNECTOR: Mapping[str, Rule] = {
    "tasksMax": not_needed("one process copies all partitions; raise `workers` if one core is not enough"),
    **each(not_needed(_NO_TASKS), "autoRestart listOffsets alterOffsets version"),
}
OAUTH: Mapping[str, Rule] = {
    **each(
        not_needed("tokens are asked for again by themselves, and brokers check them"),
        "connectTimeoutSeconds readTimeoutSeconds httpRetries httpRetryPauseMs enableMetrics accessTokenIsJwt "
        "maxTokenExpirySeconds "
        "includeAcceptHeader",
    ),
    **each(
        decide("it has no equal: a Python function may give tokens instead (sasl.oauthbearer.token.provider)"),
        "refreshToken username passwordSecret clientAssertion clientAssertionLocation clientAssertionType audience "
        "saslExtensions "
        "grantType tokenLocation disableTlsHostnameVerification",
    ),
}  # fmt: skip
"""Parts of ``authentication`` with ``type: oauth``."""
PATTERNS: Mapping[str, str] = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.blacklist",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.blacklist",
}
"""Key of a mirror in the resource -> key of MirrorMaker 2."""
