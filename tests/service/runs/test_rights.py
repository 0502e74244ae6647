"""The rights that docs/GUIDE.md lists are enough for the whole job, and the lack of each is named."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from mirror.sandbox import SandboxCluster
from tests import secured
from tests.service.runs.holes.test_holes import assert_same_for_consumers, transactions
from tests.service.runs.test_worker import caught_up
from tests.service.stage.kafka_side import create_topic, end_of, produce
from tests.service.stage.rights import AUTHORIZER, OPERATIONS, TIMEOUT_S, Principals, Right, config, listed
from tests.service.stage.running import Line, Mirror, get, mirror

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SandboxCluster]]:
    files = secured.made(tmp_path_factory.mktemp("certificates"))
    with (
        secured.cluster(files, name="source", more=AUTHORIZER) as source,
        secured.cluster(files, name="destination", more=AUTHORIZER) as destination,
    ):
        yield {"source": source, "destination": destination}


def begins_above_zero(cluster: SandboxCluster, topic: str, offset: int = 5) -> None:
    """Deletes the first records."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        deleted.result(TIMEOUT_S)


def test_the_list_is_enough(both: dict[str, SandboxCluster], topic_name: str, tmp_path: Path) -> None:
    """A topic that begins above offset 0, grows, and gets transactions: created, filled, trimmed, widened, copied."""
    source, destination = both["source"], both["destination"]
    create_topic(source.bootstrap_servers, topic_name, 1)
    produce(source.bootstrap_servers, topic_name, 40, partitions=1)
    begins_above_zero(source, topic_name)
    principals, flow = Principals(both), "source-to-destination"
    principals.make(["whole"])
    principals.grant("whole", [right.of(topic=topic_name, flow=flow) for right in listed()])
    with mirror(tmp_path / "mirror.yaml", config(both, "whole", [topic_name], flow)) as process:
        caught_up(process, source.bootstrap_servers, destination.bootstrap_servers, topic_name, 1)
        admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
        for grown in admin.create_partitions([NewPartitions(topic_name, 2)]).values():
            grown.result(TIMEOUT_S)
        process.wait_event("partitions_added")
        transactions(source.bootstrap_servers, topic_name, 5)
        produce(source.bootstrap_servers, topic_name, 40, partitions=2, seed=1)
        caught_up(process, source.bootstrap_servers, destination.bootstrap_servers, topic_name, 2)
        warned = [line["event"] for line in process.lines if line.get("level") in ("warning", "error")]
        assert warned == []
        assert process.stop() == 0
    assert_same_for_consumers(source.bootstrap_servers, destination.bootstrap_servers, topic_name)


# -- each right by itself ----------------------------------------------------------------------------------------------

INTERNAL = "mirror-internal.other"
"""An internal topic of somebody else at the source."""
TOPICS = "topics"
"""The flow of all cases that are about a topic: each has a topic of its own."""
SLACK = 3
"""Lines that a case may add in ``QUIET_S`` while its right is missing."""
QUIET_S = 2.0
Expected = tuple[str, str]
"""An event, and a pattern in its detail or remedy. T and F in it stand for the case's topic and flow."""


@dataclass(frozen=True)
class Case:
    """What is seen without one right. ``begins``: when the mirror starts without it. ``later``: when it is withdrawn
    while it runs; None: it is not needed then. ``giving``: the rights to the resource with which Kafka's authorizer
    gives it, and which are taken away together with it. ``needs``: more about the topic or flow."""

    begins: Expected
    later: Expected | None
    giving: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


def halted(reason: str, what: str) -> Expected:
    return "halted", rf"{reason} .*{what}"


ALL = tuple(OPERATIONS)
UNREAD = ("configs_unknown", r"configs of ([^;]*, )?T[ ,].*DescribeConfigs on these topics of cluster ")
CASES = {
    "source TOPIC TOPIC Read": Case(
        halted("authorization", "Read on topic T of cluster source"),
        halted("authorization", "Read on topic T of cluster source"),
    ),
    "source TOPIC TOPIC Describe": Case(
        ("topic_unknown", "Describe on topic T of cluster source"),
        ("topic_hidden", "Describe on topic T of cluster source"),
        giving=ALL,
    ),
    "source TOPIC TOPIC DescribeConfigs": Case(
        halted("create_failed", "DescribeConfigs on topic T of cluster source"), (UNREAD[0], f"{UNREAD[1]}source")
    ),
    "source GROUP mirror-FLOW Read": Case(
        ("not_authorized", "grant Read on the group mirror-F at the source"),
        ("not_authorized", "grant Read on the group mirror-F at the source"),
    ),
    "source TOPIC mirror-internal.* Read": Case(
        ("loops_not_seen", f"Read on topic {INTERNAL} of cluster source"),
        ("loops_not_seen", f"Read on topic {INTERNAL} of cluster source"),
    ),
    "source TOPIC mirror-internal.* Describe": Case(
        ("loops_not_seen", r"Describe on topic mirror-internal\.\* of cluster source"),
        ("loops_not_seen", r"Describe on topic mirror-internal\.\* of cluster source"),
        giving=ALL,
    ),
    "destination TOPIC TOPIC Write": Case(
        halted("authorization", "Write on topic T of cluster destination"),
        halted("authorization", "Write on topic T of cluster destination"),
    ),
    "destination TOPIC TOPIC Read": Case(("not_authorized", "Read on topic T of cluster destination"), None),
    "destination TOPIC TOPIC Describe": Case(
        halted("authorization", "Describe on topic T of cluster destination"),
        halted("authorization", "(Describe|Write) on topic T of cluster destination"),
        giving=ALL,
        needs=("exists",),
    ),
    "destination TOPIC TOPIC DescribeConfigs": Case(
        (UNREAD[0], f"{UNREAD[1]}destination"), (UNREAD[0], f"{UNREAD[1]}destination"), giving=("AlterConfigs",)
    ),
    "destination TOPIC TOPIC Create": Case(halted("create_failed", "Create on topic T of cluster destination"), None),
    "destination TOPIC TOPIC Alter": Case(
        halted("fewer_partitions", "Alter on topic T of cluster destination"), None, needs=("exists", "grows")
    ),
    "destination TOPIC TOPIC Delete": Case(
        halted("authorization", "Delete on topic T of cluster destination"), None, needs=("above zero",)
    ),
    "destination TOPIC TOPIC AlterConfigs": Case(
        halted("authorization", "AlterConfigs on topic T of cluster destination"),
        None,
        needs=("compacted",),
    ),
    "destination TOPIC mirror-internal.FLOW Read": Case(
        ("waiting", r"Read on topic mirror-internal\.F of cluster destination"), None
    ),
    "destination TOPIC mirror-internal.FLOW Write": Case(
        ("waiting", r"Write on topic mirror-internal\.F of cluster destination"),
        ("state_not_written", r"Write on topic mirror-internal\.F of cluster destination"),
        needs=("mapped",),
    ),
    "destination TOPIC mirror-internal.FLOW Describe": Case(
        ("waiting", "grant Create, Read, Write and Describe on it"),
        ("state_not_read", r"Describe on topic mirror-internal\.F of cluster destination"),
        giving=ALL,
    ),
    "destination TOPIC mirror-internal.FLOW DescribeConfigs": Case(
        ("configs_unknown", r"configs of mirror-internal\.F at cluster destination.* DescribeConfigs on these"),
        ("configs_unknown", r"configs of mirror-internal\.F at cluster destination.* DescribeConfigs on these"),
    ),
    "destination TOPIC mirror-internal.FLOW Create": Case(
        ("waiting", r"Create on topic mirror-internal\.F of cluster destination"), None
    ),
    "destination TRANSACTIONAL_ID mirror.FLOW.* Write": Case(
        ("no_ownership", r"Write and Describe on transactional ids beginning with mirror\.F\. of cluster destination"),
        None,
    ),
    "destination TRANSACTIONAL_ID mirror.FLOW.* Describe": Case(
        ("no_ownership", r"Write and Describe on transactional ids beginning with mirror\.F\. of cluster destination"),
        None,
        giving=ALL,
    ),
    "destination BROKER kafka-cluster Alter": Case(
        halted("fill_not_permitted", "Alter on cluster destination"),
        halted("fill_not_permitted", "Alter on cluster destination"),
    ),
    # That it is withdrawn is noticed within 30 s: ``tests/relay/watch/test_expiry.py``.
    "destination BROKER kafka-cluster DescribeConfigs": Case(
        ("producer_memory_assumed", "DescribeConfigs on cluster destination"), None
    ),
}


COUNTED = (("source", "Fetch"), ("destination", "Produce"), ("destination", "DeleteRecords"))
"""Cluster and request of errors that the metrics count where rights to topics are missing."""


def is_counted(metrics: str, what: tuple[str, str]) -> bool:
    """Whether the metrics have such an error, by cluster and request."""
    cluster, api = what
    return any(
        line.startswith("mirror_request_errors_total{")
        and f'api="{api}"' in line
        and f'cluster="{cluster}"' in line
        and 'error="topic_authorization_failed"' in line
        for line in metrics.splitlines()
    )


class Played:
    """One case: its right, topic, flow and user, and the lines in which its lack is named, phase by phase."""

    def __init__(self, number: int, right: Right, case: Case) -> None:
        self.right, self.case = right, case
        self.topic = f"rights-{number}"
        of_topic = right.name == "TOPIC"
        self.flow = self.user = TOPICS if of_topic else f"flow{number}"
        self.begins: list[Line] = []
        self.later: list[Line] = []
        self.added = 0
        """Lines of its own that came in ``QUIET_S`` while the right was missing."""

    @property
    def taken(self) -> list[Right]:
        """The rights that are taken away."""
        resource = self.right.side, self.right.kind, self.right.name
        of_it = [right for right in listed() if (right.side, right.kind, right.name) == resource]
        same = [right for right in of_it if right == self.right or right.operation in self.case.giving]
        return [right.of(topic=self.topic, flow=self.flow) for right in same]

    @property
    def unread(self) -> str:
        """The topic whose configs are unknown without the right, as in ``Case``; empty: they are not, each time."""
        both = {self.case.begins[0], self.case.later[0] if self.case.later else ""}
        if both != {UNREAD[0]}:
            return ""
        return r"mirror-internal\.F" if "internal" in self.right.name else "T"

    @property
    def is_mapped(self) -> bool:
        return "mapped" in self.case.needs

    def named(self, lines: list[Line], expected: Expected) -> list[Line]:
        """The lines that name its right."""
        event, pattern = expected
        pattern = re.sub(r"\bT\b", self.topic, re.sub(r"\bF\b", self.flow, pattern))

        def text(line: Line) -> str:
            return " ".join(str(line.get(key, "")) for key in ("reason", "detail", "remedy"))

        return [line for line in lines if line["event"] == event and re.search(pattern, text(line))]

    def of_it(self, lines: list[Line]) -> int:
        """The number of lines of its own: of its topic, or if it has a flow, all of them."""
        return sum(
            line["event"] != "progress" and (self.flow != TOPICS or line.get("topic") == self.topic) for line in lines
        )


def prepare(both: dict[str, SandboxCluster], played: Played) -> None:
    """Its topic: ten records and a transaction, or what the case needs."""
    source, destination = both["source"].bootstrap_servers, both["destination"].bootstrap_servers
    needs, topic = played.case.needs, played.topic
    create_topic(source, topic, 2 if "grows" in needs else 1, **(COMPACTED if "compacted" in needs else {}))
    if "exists" in needs:
        create_topic(destination, topic, 1)
    produce(source, topic, 40, partitions=1, keyed=True)
    if played.flow != TOPICS:
        transactions(source, topic, 1)
    if "above zero" in needs:
        begins_above_zero(both["source"], topic)
    if "compacted" in needs:
        produce(source, topic, 20, partitions=1, keyed=True, seed=2)
        begins_above_zero(both["source"], topic, 45)  # the first batch is gone: filler takes its place


COMPACTED = {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": "0.99"}


class Play:
    """All cases at the same time. Those about topics share a mirror, each other one has a mirror of its own."""

    def __init__(self, both: dict[str, SandboxCluster], stack: ExitStack, folder: Path) -> None:
        self._both = both
        self.cases = [Played(number, right, CASES[str(right)]) for number, right in enumerate(listed())]
        self._principals = Principals(both)
        self._source = both["source"].bootstrap_servers
        create_topic(self._source, INTERNAL, 1, cleanup_policy="compact")
        produce(self._source, INTERNAL, 1, partitions=1, keyed=True)
        self._principals.make({case.user for case in self.cases})
        for case in self.cases:
            prepare(both, case)
            self._principals.grant(case.user, (right.of(topic=case.topic, flow=case.flow) for right in listed()))
        self._withdraw()
        self._mirrors = {flow: self._mirror(flow, stack, folder) for flow in {case.flow: None for case in self.cases}}

    def _mirror(self, flow: str, stack: ExitStack, folder: Path) -> Mirror:
        own = [case for case in self.cases if case.flow == flow]
        mapped = {"offsets": "mapped", "checkpoint.interval.ms": 500} if own[0].is_mapped else {}
        text = config(self._both, own[0].user, [case.topic for case in own], flow, **mapped)
        return stack.enter_context(mirror(folder / f"{flow}.yaml", text))

    def _withdraw(self) -> None:
        for case in self.cases:
            self._principals.withdraw(case.user, case.taken)

    def grant(self) -> None:
        """Everything is copied then, and configs are known."""
        marks = {flow: len(process.lines) for flow, process in self._mirrors.items()}
        for case in self.cases:
            self._principals.grant(case.user, case.taken)
        for case in self.cases:
            if case.unread:
                is_known = partial(self._named_since, case, marks[case.flow], ("configs_known", case.unread))
                self._mirrors[case.flow].wait_for(is_known, f"{case.right}: configs are known")
        for case in self.cases:
            self._mirrors[case.flow].wait_for(partial(self._is_copied, case), f"{case.right}: it is copied")

    def begin(self) -> None:
        """Each mirror has begun without its right, and names it."""
        for case in self.cases:
            process = self._mirrors[case.flow]
            process.wait_for(partial(case.named, process.lines, case.case.begins), f"{case.right}: it is named")
        for case in self.cases:
            case.begins = case.named(self._mirrors[case.flow].lines, case.case.begins)
        # A worker tells its counters once a second.
        topics = self._mirrors[TOPICS]
        topics.wait_for(lambda: all(map(partial(is_counted, get(topics, "/metrics")[1]), COUNTED)), "all is counted")

    def withdraw(self) -> None:
        """More is written without the rights. Each lack is named, and then little more is said."""
        marks = {flow: len(process.lines) for flow, process in self._mirrors.items()}
        self._withdraw()
        produce(self._source, INTERNAL, 1, partitions=1, keyed=True, seed=1)
        for case in self.cases:
            produce(self._source, case.topic, 20, partitions=1, keyed=True, seed=1)
            if case.flow != TOPICS:
                transactions(self._source, case.topic, 2)
        for case in self.cases:
            process = self._mirrors[case.flow]
            if case.case.later is not None:
                named = partial(self._later, case, marks[case.flow])
                process.wait_for(named, f"{case.right}: it is named later")
        before = {flow: len(process.lines) for flow, process in self._mirrors.items()}
        time.sleep(QUIET_S)
        for case in self.cases:
            case.later = self._later(case, marks[case.flow])
            case.added = case.of_it(self._mirrors[case.flow].lines[before[case.flow] :])

    def _named_since(self, case: Played, mark: int, expected: Expected) -> list[Line]:
        return case.named(self._mirrors[case.flow].lines[mark:], expected)

    def _later(self, case: Played, mark: int) -> list[Line]:
        lines = self._mirrors[case.flow].lines[mark:]
        return case.named(lines, case.case.later) if case.case.later is not None else []

    def _is_copied(self, case: Played) -> bool:
        """Both sides end at the same offset; at a mapped copy, the mirror says that nothing is left."""
        if case.is_mapped:
            progress = self._mirrors[case.flow].of("progress")
            return bool(progress) and progress[-1]["lag_records"] == 0 and progress[-1]["partitions"] == {"active": 1}
        return self._end("source", case) == self._end("destination", case)

    def _end(self, side: str, case: Played) -> int:
        try:
            return end_of(self._both[side].bootstrap_servers, case.topic, 0)
        except (AssertionError, LookupError):
            return -1  # not there yet

    def stop(self) -> None:
        """All of them, cleanly."""
        for process in self._mirrors.values():
            assert process.stop() == 0


@pytest.fixture(scope="module")
def played(both: dict[str, SandboxCluster], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """
    1. Every mirror starts without its right, and names it.
    2. The right is granted: everything is copied, without a restart.
    3. The right is withdrawn while the mirror runs, and more is written: it is named.
    4. It is granted again: everything is copied.
    """
    with ExitStack() as stack:
        play = Play(both, stack, tmp_path_factory.mktemp("rights"))
        play.begin()
        play.grant()
        play.withdraw()
        play.grant()
        play.stop()
    return {str(case.right): case for case in play.cases}


def test_each_right_has_a_case() -> None:
    """The guide's table and the cases here are the same list."""
    assert sorted(CASES) == sorted(map(str, listed()))


@pytest.mark.parametrize("right", CASES)
def test_without_it(played: dict[str, Played], right: str) -> None:
    """Its lack is named at the start, and when it is withdrawn; not over and over; and what waits for it goes on."""
    case = played[right]
    assert case.begins
    assert bool(case.later) == (case.case.later is not None)
    assert case.added <= SLACK
    for lines in (case.begins, case.later):
        assert len(lines) <= SLACK


def test_what_is_counted() -> None:
    """The check of the play sees it if it is not."""
    line = 'mirror_request_errors_total{api="Fetch",cluster="source",error="topic_authorization_failed"} 1.0'
    assert is_counted(f"#\n{line}\n", ("source", "Fetch"))
    assert not is_counted(line, ("destination", "Fetch"))
    assert not is_counted(line.replace("topic_authorization_failed", "none"), ("source", "Fetch"))
