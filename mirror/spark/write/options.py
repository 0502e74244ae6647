"""The options of the sink. Those that Spark's own Kafka connector has, too, have the same names."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from mirror.raw.errors import InvalidConfig
from mirror.raw.settings import ClientSettings, DeliveryTimeout, read_settings
from mirror.spark.write.errors import Reason, SinkError

KAFKA = "kafka."
EXACT, MAPPED = "exact", "mapped"
FLOW, TOPIC, OFFSETS, CLUSTER_ID, LEADING = "flow", "topic", "offsets", "source.cluster.id", "max.leading.filler"
OWN = (FLOW, TOPIC, OFFSETS, CLUSTER_ID, LEADING)
OF_SPARK = frozenset({"checkpointlocation", "path"})
"""Options that Spark adds to those of a query."""


class SinkSettings(ClientSettings):
    """``kafka.*``."""

    client_id: str = "mirror-spark"
    """Name that brokers show in their logs, metrics and quotas."""
    delivery_timeout_ms: DeliveryTimeout = 120_000
    """A batch that was not acknowledged for this long fails its task. At least request.timeout.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of the sink.

    Attributes:
        flow: name of the flow; the batches' identities follow from it.
        topic: the topic to which all rows go; empty: the column ``topic`` says it.
        exact: True if batches keep the source's offsets.
        cluster_id: the source cluster's id; a part of the identity. May be empty.
        max_leading: most offsets before the first row that filler takes, with ``exact``.
        kafka: the settings of the client, by Kafka's names. (They may hold secrets, and are not shown.)
    """

    flow: str
    topic: str = ""
    exact: bool = False
    cluster_id: str = ""
    max_leading: int = 0
    kafka: dict[str, str] = field(repr=False)

    @classmethod
    def read(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Parses the options of ``df.write`` or ``df.writeStream``. Names may have any case.

        Raises:
            SinkError: lists everything that is wrong.
        """
        given = {name.lower(): value for name, value in options.items() if name.lower() not in OF_SPARK}
        kafka = {name.removeprefix(KAFKA): value for name, value in given.items() if name.startswith(KAFKA)}
        wrong = [_unknown(name) for name in given if not name.startswith(KAFKA) and name not in OWN]
        if not given.get(FLOW):
            wrong.append(
                "flow: is required; name this copy: the same name in every run of it, another for another copy"
            )
        offsets = given.get(OFFSETS, MAPPED).lower()
        if offsets not in (EXACT, MAPPED):
            wrong.append(f"offsets: is {offsets}; {EXACT} or {MAPPED}")
        leading = given.get(LEADING, "0")
        if not leading.isdecimal():
            wrong.append(f"{LEADING}: is {leading}; give a number of offsets")
        elif int(leading) and offsets != EXACT:
            wrong.append(f"{LEADING}: is for offsets={EXACT}; remove it")
        try:
            read_settings(SinkSettings, kafka)
        except InvalidConfig as error:
            wrong.append(str(error))
        if wrong:
            raise SinkError(Reason.OPTIONS, "\n".join(wrong))
        return cls(
            flow=given[FLOW],
            topic=given.get(TOPIC, ""),
            exact=offsets == EXACT,
            cluster_id=given.get(CLUSTER_ID, ""),
            max_leading=int(leading),
            kafka=kafka,
        )

    def settings(self) -> SinkSettings:
        """Returns the client's settings, parsed again at each call. (Each task does it once.)"""
        return read_settings(SinkSettings, self.kafka)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, [*OWN, "kafka.bootstrap.servers"], n=1)
    return f"{name}: is unknown; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(OWN)} and {KAFKA}*")
