"""Scenarios that test promises to users at their full size."""

import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from chaos.errors import ChaosError
from chaos.play.sides import Name, Side
from chaos.play.stage import Stage
from chaos.producers.topics import TopicPlan
from chaos.scenario import scenario
from chaos.waiting import until
from chaos.witness.groups import committed
from chaos.witness.probes import markers_since
from lab.evidence import HALF_READ, MANY_TRANSACTIONS, WORKER_KILLED
from mirror.demo.data.writers import KAFKA_TOOLS
from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import jars

GROUP = "Promises"
_CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_IDLE_MS = 10_000
_END_TIMEOUT_S = 240.0
TRANSACTIONS, TRANSACTIONS_QUICK = 10_000, 1_000
SMALL = TopicPlan(name="txn-none", writing="transactional", partitions=2)


@scenario(
    "ten-thousand-transactions", group=GROUP, full=1, quick=1, bare=True, rate=400.0, topics=(SMALL,),
    struck=(WORKER_KILLED, MANY_TRANSACTIONS),
    does="10,000 small transactions (1,000 in a quick run), one in five aborted; the worker is killed in the middle",
)  # fmt: skip
def ten_thousand_transactions(stage: Stage) -> None:
    wanted = TRANSACTIONS_QUICK if stage.quick else TRANSACTIONS
    stage.create_topics()
    for _ in range(4):  # several producers, since a single one would mostly wait for its coordinator
        stage.start_stream()
    stage.start_mirror()
    stage.flowing()
    for _ in stage.repeat():
        until(lambda: stage.ended >= wanted // 2, "half of the transactions", timeout_s=_END_TIMEOUT_S * 4)
        stage.mirror.kill_worker()
        stage.recovered()
        until(lambda: stage.ended >= wanted, "all of the transactions", timeout_s=_END_TIMEOUT_S * 4)
        stage.note("transactions", stage.ended)
        marked = sum(markers_since(stage.source, topic, 0, index) for topic, index in stage.names)
        stage.seen(MANY_TRANSACTIONS, int(marked >= wanted))


@scenario(
    "java-consumer-moves", group=GROUP, full=3, quick=1, struck=(HALF_READ,),
    topics=(SMALL, TopicPlan(name="idem-lz4", writing="idempotent", codec="lz4")),
    does="Kafka's own consumer reads half of a topic at the source and, with its committed offsets as they are, the "
    "rest at the destination: misses nothing, repeats nothing",
)  # fmt: skip
def java_consumer_moves(stage: Stage) -> None:
    topic = stage.topic("txn-none")
    names = [(topic, index) for index in range(SMALL.partitions)]
    for _ in stage.repeat():
        group = f"{stage.prefix}-readers"
        until(lambda: sum(stage.source.ends(names, committed=True).values()) > 400, "400 offsets")
        first = _consume(stage, stage.source, topic, group, most=150)
        moved = _move(stage, group)
        stage.stream.stop()
        stage.caught_up()
        with ThreadPoolExecutor() as threads:  # in parallel: each consumer waits long to be sure that no more comes
            rest = threads.submit(_consume, stage, stage.destination, topic, group)
            everything = _consume(stage, stage.source, topic, f"{group}-all")
            second = rest.result()
        stage.seen(HALF_READ, int(bool(moved) and 0 < len(first) < len(everything)))
        repeated = [place for place, times in Counter(first + second).items() if times > 1]
        if repeated or sorted(first + second) != sorted(everything):
            raise ChaosError(
                f"read {len(first)} at the source and {len(second)} at the destination of {len(everything)}; "
                f"repeated {repeated[:5]}, missed {sorted(set(everything) - set(first) - set(second))[:5]}, "
                f"not of the source {sorted({*first, *second} - set(everything))[:5]}"
            )


def _move(stage: Stage, group: str) -> dict[Name, int]:
    """Commits a group's offsets of the source at the destination, without leader epochs. Returns the offsets that the
    destination's coordinator has then."""
    asked = [ConsumerGroupTopicPartitions(group)]
    (found,) = stage.source.admin.list_consumer_group_offsets(asked).values()
    offsets = [TopicPartition(one.topic, one.partition, one.offset) for one in found.result(30).topic_partitions or []]
    stage.caught_up()
    (moved,) = stage.destination.admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, offsets)]
    ).values()
    moved.result(30)
    return until(lambda: committed(stage.destination, group) or {}, f"the offsets of {group} at the destination")


def _consume(stage: Stage, side: Side, topic: str, group: str, *, most: int | None = None) -> list[tuple[Name, int]]:
    """Runs Kafka's console consumer as a member of a group, which commits. Returns partition and offset of each record.
    ``most``: maximum number of records; None: until none has come for a while."""
    arguments = ["--bootstrap-server", side.bootstrap_servers, "--topic", topic, "--group", group]
    arguments += ["--timeout-ms", str(_IDLE_MS), "--isolation-level", "read_committed"]
    arguments += ["--command-property", "auto.offset.reset=earliest"]
    for shown in ("partition=true", "offset=true", "value=false"):
        arguments += ["--formatter-property", f"print.{shown}"]
    if most is not None:
        # With the limit, only the records that were returned are committed.
        arguments += ["--max-messages", str(most)]
    folder = stage.processes.folder
    command = Jvm().command(jars.classpath_of([KAFKA_TOOLS]), _CONSOLE_CONSUMER, arguments, folder=folder, small=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_END_TIMEOUT_S, check=False)
    found = []
    for line in done.stdout.splitlines():
        partition, offset = (part.split(":")[1] for part in line.split()[:2])
        found.append(((topic, int(partition)), int(offset)))
    if not found:
        raise ChaosError(f"Kafka's consumer read nothing of {topic} at {side.name}: {done.stderr[-2000:]}")
    return found
