"""The options of the data source ``mirror-audit-batches``. They are plain values here, and text on their way through
Spark."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mirror.audit.errors import AuditError
from mirror.audit.model.places import Adopted, OldRange, TopicPartition
from mirror.audit.model.request import Endpoint
from mirror.audit.prepare.plan import MIB, Task, from_json, to_json
from mirror.audit.read.holes import PLAIN, Rules
from mirror.net.options import address_text
from mirror.net.security.options import PLAINTEXT, SecurityOptions

FORMAT = "mirror-audit-batches"
FETCH_BYTES = 8 * MIB
SCHEMA = (
    "cluster string, topic string, partition int, part string, base_offset long, last_offset long, count int, "
    "codec string, flags short, base_timestamp long, max_timestamp long, size long, crc_ok boolean, digest binary, "
    "note string"
)
"""``rows.SCHEMA`` in Spark's syntax."""
BATCH, HOLES, ODD, COVERAGE, RECORD, UNOPENED = "batch", "holes", "odd", "coverage", "record", "unopened"
"""Values of the column ``part``."""
BATCHES, CHUNKS, RECORDS = "batches", "chunks", "records"
"""The kinds of rows: batches, chunks of them, or records."""
WHOLE, OPENED = "batch", "record"
"""The units of comparison: whole batches, or records, each as if it were a batch of one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The data source's options."""

    endpoint: Endpoint
    cluster_id: str
    topic_ids: dict[str, str]
    digest: str
    tasks: tuple[Task, ...]
    rows: str = BATCHES
    units: str = WHOLE
    rules: Rules = PLAIN
    fetch_bytes: int = FETCH_BYTES
    cleaned: frozenset[str] = frozenset()
    """Topics that are compacted on this side, by their names at the source."""
    old: Mapping[TopicPartition, Sequence[OldRange]] = field(default_factory=dict)
    """The places of old messages in the source, in order. There, a destination's batches are opened."""
    adopted: Mapping[TopicPartition, Adopted] = field(default_factory=dict)
    """The part of a destination that was there before the flow."""

    def to_options(self) -> dict[str, str]:
        """Returns the options as text, for ``spark.read.options``."""
        return {
            "cluster": self.endpoint.alias,
            "bootstrap.servers": ",".join(address_text(host, port) for host, port in self.endpoint.bootstrap),
            "client.id": self.endpoint.client_id,
            "request.timeout.ms": str(round(self.endpoint.request_timeout_s * 1000)),
            "socket.connection.setup.timeout.ms": str(round(self.endpoint.setup_timeout_s * 1000)),
            "security": json.dumps(self.endpoint.security.for_other_machines()),
            "cluster.id": self.cluster_id,
            "topic.ids": json.dumps(self.topic_ids),
            "digest": self.digest,
            "rows": self.rows,
            "units": self.units,
            "rules": self.rules.to_json(),
            "fetch.max.bytes": str(self.fetch_bytes),
            "cleaned": json.dumps(sorted(self.cleaned)),
            "old": json.dumps([[*key, spans] for key, spans in self.old.items()]),
            "adopted": json.dumps([[*key, one] for key, one in self.adopted.items()]),
            "ranges": to_json(self.tasks),
        }

    @classmethod
    def from_options(cls, options: dict[str, str]) -> "SourceOptions":
        """Returns the options from the text that ``to_options`` made.

        Raises:
            AuditError: an option is missing or invalid; the error names it.
        """
        name = ""
        try:
            name = "bootstrap.servers"
            pairs = [entry.strip().rpartition(":") for entry in options[name].split(",")]
            bootstrap = tuple((host.strip("[]"), int(port)) for host, _, port in pairs)
            name = "ranges"
            tasks = tuple(from_json(options[name]))
            name = "cluster.id"
            cluster_id = options[name]
            name = "topic.ids"
            topic_ids = json.loads(options.get(name, "{}"))
            name = "cleaned"
            cleaned = frozenset(json.loads(options.get(name, "[]")))
            name = "old"
            old = {
                TopicPartition(topic, partition): [OldRange(*span) for span in spans]
                for topic, partition, spans in json.loads(options.get(name, "[]"))
            }
            name = "adopted"
            adopted = {
                TopicPartition(topic, partition): Adopted(*one)
                for topic, partition, one in json.loads(options.get(name, "[]"))
            }
            name = "request.timeout.ms"
            request_timeout_s = int(options.get(name, "30000")) / 1000
            name = "socket.connection.setup.timeout.ms"
            setup_timeout_s = int(options.get(name, "10000")) / 1000
            name = "security"
            security = SecurityOptions.unpack(json.loads(options[name])) if name in options else PLAINTEXT
            name = "rules"
            rules = Rules.from_json(options[name]) if name in options else PLAIN
            name = "fetch.max.bytes"
            fetch_bytes = int(options.get(name, str(FETCH_BYTES)))
        except (KeyError, TypeError, ValueError) as error:
            what = "is missing" if isinstance(error, KeyError) else f"cannot be read: {error}"
            raise AuditError(
                f"option {name} of {FORMAT} {what}", "SourceOptions in mirror/audit/spark/options.py has them all"
            ) from error
        return cls(
            endpoint=Endpoint(
                alias=options.get("cluster", "cluster"),
                bootstrap=bootstrap,
                client_id=options.get("client.id", "mirror-audit"),
                request_timeout_s=request_timeout_s,
                setup_timeout_s=setup_timeout_s,
                security=security,
            ),
            cluster_id=cluster_id,
            topic_ids=topic_ids,
            digest=options.get("digest", "xxh3_128"),
            tasks=tasks,
            rows=options.get("rows", BATCHES),
            units=options.get("units", WHOLE),
            rules=rules,
            fetch_bytes=fetch_bytes,
            cleaned=cleaned,
            old=old,
            adopted=adopted,
        )
