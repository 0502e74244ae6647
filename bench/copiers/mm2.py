"""MirrorMaker 2 of Apache Kafka 4.3.0: ``connect-mirror-maker`` in dedicated mode, tuned for the least CPU.

Everything that copying does not need is off: heartbeats, checkpoints, offset syncs, the sync of topic configs and ACLs,
and refreshing.
"""

import dataclasses
import re

from bench.copiers import jvm
from bench.copiers.copying import Job
from bench.copiers.programs import Program, Programs
from bench.measure import WARM, Window
from mirror.sandbox.kafka import jars

__all__ = ["MirrorMaker2", "properties"]

VERSION = "4.3.0"
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"

SETTINGS = {
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "tasks.max": "2",
    "replication.factor": "1",
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "emit.offset-syncs.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "sync.group.offsets.enabled": "false",
    "refresh.topics.enabled": "false",
    "refresh.groups.enabled": "false",
    "heartbeats.topic.replication.factor": "1",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "10000",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "1",
}


@dataclasses.dataclass(frozen=True, slots=True)
class MirrorMaker2:
    """MirrorMaker 2 as a copier; see ``copying.Copier``."""

    name: str = "mm2"
    window: Window = WARM
    supervises: bool = False
    everywhere: bool = True

    def command(self, job: Job, programs: Programs) -> list[str]:
        """Writes the properties, and returns the command that runs it."""
        path = programs.write("mm2.properties", jvm.render(properties(job)))
        return jvm.command(jars.classpath_of([("org.apache.kafka", "connect-mirror", VERSION)]), MAIN, str(path))

    def end(self, program: Program) -> None:
        """Kills it. What it might still write is not needed."""
        program.kill()


def properties(job: Job) -> dict[str, str]:
    """Returns MirrorMaker 2's whole configuration."""
    consumer = jvm.consumer(prompt=job.prompt, far=bool(job.far))
    return {
        "clusters": "source, destination",
        "source.bootstrap.servers": job.source,
        "destination.bootstrap.servers": job.destination,
        "source->destination.enabled": "true",
        "source->destination.topics": re.escape(job.topic),
        "destination->source.enabled": "false",
        **SETTINGS,
        **{f"{side}.{key}": value for side in job.tls for key, value in jvm.tls(job.ca).items()},
        **{f"source.consumer.{key}": value for key, value in consumer.items()},
        **{f"destination.producer.{key}": value for key, value in jvm.producer(job.codec, prompt=job.prompt).items()},
    }
