"""MirrorMaker 1 of Apache Kafka 3.9.2, the last version that has it: ``kafka-mirror-maker``, tuned for the least CPU.

It does not keep partitions: its producer chooses one for each record without a key. So a copy is complete when all
records are there, in whatever partition.
"""

import dataclasses
import re
import uuid

from bench.copiers import jvm
from bench.copiers.copying import Job
from bench.copiers.programs import Program, Programs
from bench.measure import WARM, Window
from mirror.sandbox.kafka import jars

__all__ = ["MirrorMaker1", "consumer_properties", "producer_properties"]

VERSION = "3.9.2"
MAIN = "kafka.tools.MirrorMaker"


@dataclasses.dataclass(frozen=True, slots=True)
class MirrorMaker1:
    """MirrorMaker 1 as a copier; see ``copying.Copier``."""

    name: str = "mm1"
    window: Window = WARM
    supervises: bool = False
    everywhere: bool = False

    def command(self, job: Job, programs: Programs) -> list[str]:
        """Writes the properties, and returns the command that runs it."""
        group = f"mm1-{uuid.uuid4().hex[:8]}"
        consumer = programs.write("mm1-consumer.properties", jvm.render(consumer_properties(job, group)))
        producer = programs.write("mm1-producer.properties", jvm.render(producer_properties(job)))
        return jvm.command(
            jars.classpath(VERSION), MAIN, "--consumer.config", str(consumer), "--producer.config", str(producer),
            "--include", re.escape(job.topic), "--num.streams", "1", "--offset.commit.interval.ms", "10000",
        )  # fmt: skip

    def end(self, program: Program) -> None:
        """Kills it. What it might still write is not needed."""
        program.kill()


def consumer_properties(job: Job, group: str) -> dict[str, str]:
    """Returns the properties of MirrorMaker 1's consumer. ``group``: its consumer group."""
    return {
        "bootstrap.servers": job.source,
        "group.id": group,
        "auto.offset.reset": "earliest",
        **jvm.consumer(prompt=job.prompt),
    }


def producer_properties(job: Job) -> dict[str, str]:
    """Returns the properties of MirrorMaker 1's producer."""
    return {
        "bootstrap.servers": job.destination,
        # MirrorMaker 1's own default is 1, from the time before idempotence made 5 safe.
        "max.in.flight.requests.per.connection": "5",
        **jvm.producer(job.codec, prompt=job.prompt),
    }
