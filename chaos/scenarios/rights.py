"""Scenarios in which Kafka's own authorizer withdraws rights from the mirror while it runs, and gives them back."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AclOperation, ResourceType

from chaos.errors import ChaosError
from chaos.play.rights import CLUSTER, Right, withdrawn
from chaos.play.sides import Side
from chaos.play.stage import Stage
from chaos.producers.topics import HOLES, PLAIN, TopicPlan
from chaos.producers.writing import write
from chaos.scenario import Shape, scenario
from chaos.scenarios.data import FRESH, quiet_beside_a_stream
from chaos.scenarios.mapped import MAPPED
from chaos.waiting import until
from lab.evidence import RIGHT_MISSED, WORKER_KILLED
from lab.proxy import Frame, watch_answer
from lab.proxy.answers import entries

GROUP = "Rights"
SHAPE = Shape(proxied=True, authorized=True)
AUTHORIZATION = "authorization"
TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, ID_REFUSED = 29, 30, 31, 53
COMES_S = 90.0
MORE = 50
"""Number of records that are written while a right is missing."""


@contextmanager
def _without(stage: Stage, side: Side, right: Right, asked: Collection[str], code: int) -> Iterator[None]:
    """Withdraws a right while the context lasts. Before it is given back, waits until a broker has refused a request.

    Args:
        stage: the stage.
        side: the cluster.
        right: the right that is withdrawn.
        asked: Kafka's names of the requests, one of which has to be refused.
        code: the error code of the refusal.
    """

    def refused(answer: Frame) -> bool:
        return code in entries(answer.decode()).values()

    # Watch before the right is withdrawn: a partition that halts sends its request only once.
    seen = [side.network.arm(name, watch_answer(), where=refused) for name in asked]
    with withdrawn(side, right):
        yield
        stage.await_that(lambda: any(one.came for one in seen), RIGHT_MISSED, COMES_S)
        for one in seen:
            one.disarm()


def _halted(stage: Stage, topic: str) -> bool:
    stage.look()
    return any((topic, 0) in mirror.halts for mirror in stage.mirrors)


def _taken_over(stage: Stage, *halted: str) -> None:
    """Kills the worker, and waits until the halted partitions go on. A takeover tries the rights again. ``halted``:
    names of topics whose partition 0 has halted for a missing right."""
    stage.mirror.kill_worker()
    stage.await_seen(WORKER_KILLED)
    for topic in halted:
        until(lambda: not _halted(stage, topic), lambda: f"{topic}-0 to go on; {stage.told()}")  # noqa: B023
        stage.halts.no_more((topic, 0))
    stage.recovered()


@scenario(
    "rights-topics", group=GROUP, full=3, quick=1, shape=SHAPE, bare=True,
    topics=(TopicPlan(name="read", writing="nobody"), TopicPlan(name="written", writing="nobody"), FRESH),
    struck=(RIGHT_MISSED.times(2), WORKER_KILLED),
    does="Read on one source topic and Write on another's copy are withdrawn: these halt, the others go on; the rights "
    "are given back, and a worker is killed",
)  # fmt: skip
def of_topics(stage: Stage) -> None:
    read, written = stage.topic("read"), stage.topic("written")
    quiet_beside_a_stream(stage)
    cases = [
        (read, stage.source, AclOperation.READ, ["Fetch"]),
        (written, stage.destination, AclOperation.WRITE, ["Produce"]),
    ]
    for turn in stage.repeat():
        for topic, side, operation, asked in cases:
            right = Right(kind=ResourceType.TOPIC, name=topic, operations=[operation])
            stage.halts.tolerate((topic, 0), AUTHORIZATION)
            with _without(stage, side, right, asked, TOPIC_REFUSED):
                write(stage.source, topic, MORE, seed=turn + 1)
                until(lambda: _halted(stage, topic), lambda: f"{topic}-0 to halt; {stage.told()}")  # noqa: B023
                stage.halts.others_go_on()
        _taken_over(stage, read, written)


@scenario(
    "rights-group", group=GROUP, full=3, quick=1, per_stage=3, shape=SHAPE, topics=PLAIN, struck=(RIGHT_MISSED,),
    does="Read on the mirror's group is withdrawn for a while, and given back: it goes on by itself",
)  # fmt: skip
def of_the_group(stage: Stage) -> None:
    right = Right(kind=ResourceType.GROUP, name=stage.group, operations=[AclOperation.READ])
    for _ in stage.repeat():
        with _without(stage, stage.source, right, ["Heartbeat", "OffsetCommit", "JoinGroup"], GROUP_REFUSED):
            stage.moment(12.0)
        stage.recovered()


@scenario(
    "rights-markers", group=GROUP, full=3, quick=1, shape=SHAPE, topics=HOLES, struck=(RIGHT_MISSED, WORKER_KILLED),
    does="the right to write markers at the destination is withdrawn: the topic with holes halts, the others go on; it "
    "is given back, and a worker is killed",
)  # fmt: skip
def of_markers(stage: Stage) -> None:
    dense = stage.topic("txn-dense")
    right = Right(
        kind=ResourceType.BROKER, name=CLUSTER, operations=[AclOperation.ALTER, AclOperation.CLUSTER_ACTION]
    )  # fmt: skip
    for _ in stage.repeat():
        stage.halts.tolerate((dense, 0), "fill_not_permitted")
        with _without(stage, stage.destination, right, ["WriteTxnMarkers"], CLUSTER_REFUSED):
            until(lambda: _halted(stage, dense), lambda: f"{dense}-0 to halt; {stage.told()}")
            stage.halts.others_go_on()
        _taken_over(stage, dense)


@scenario(
    "rights-written-down", group=GROUP, full=3, quick=1, per_stage=3, shape=SHAPE, topics=PLAIN,
    struck=(RIGHT_MISSED, WORKER_KILLED),
    does="Write on the internal topic is withdrawn for a while, in which a worker is killed, and given back",
)  # fmt: skip
def of_the_internal_topic(stage: Stage) -> None:
    right = Right(kind=ResourceType.TOPIC, name="mirror-internal.", prefixed=True, operations=[AclOperation.WRITE])
    for _ in stage.repeat():
        with _without(stage, stage.destination, right, ["Produce"], TOPIC_REFUSED):
            stage.moment()
            stage.mirror.kill_worker()
            stage.await_seen(WORKER_KILLED)
        stage.recovered()


@scenario(
    "rights-ids-mapped", group=GROUP, full=3, quick=1, per_stage=3, shape=SHAPE, topics=PLAIN, flow=MAPPED, exact=False,
    struck=(RIGHT_MISSED, WORKER_KILLED.times(2)),
    does="mapped: Write on the mirror's transactional ids is withdrawn, in which a worker is killed: its successor "
    "says that nobody owns the partitions, and copies on; once it is given back, a takeover is by an owner",
)  # fmt: skip
def of_transactional_ids(stage: Stage) -> None:
    right = Right(
        kind=ResourceType.TRANSACTIONAL_ID, name="mirror.", prefixed=True, operations=[AclOperation.WRITE]
    )  # fmt: skip
    for _ in stage.repeat():
        told = len(stage.mirror.of("no_ownership"))
        with _without(stage, stage.destination, right, ["InitProducerId"], ID_REFUSED):
            stage.mirror.kill_worker()
            stage.await_seen(WORKER_KILLED)
            until(lambda: len(stage.mirror.of("no_ownership")) > told, "the successor to say it")  # noqa: B023
            stage.caught_up()
        _taken_over(stage)
        if len(stage.mirror.of("no_ownership")) != told + 1:
            raise ChaosError("partitions have no owner, though the right was given back")
