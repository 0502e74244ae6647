"""Scenarios of brokers: they die, restart, move partitions, throttle the mirror, and lose records."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from chaos.play.placing import move
from chaos.play.sides import Side
from chaos.play.stage import Stage
from chaos.producers.topics import EVERYONE, HOLES, TopicPlan
from chaos.producers.writing import write
from chaos.scenario import Shape, scenario
from chaos.waiting import until
from chaos.witness.probes import above_watermark
from lab.evidence import (
    BROKER_KILLED,
    BROKER_RESTARTED,
    LOG_CUT_BACK,
    MOVED,
    THROTTLED,
    TOO_FEW_REPLICAS,
)
from lab.proxy import Frame, watch_answer
from lab.proxy.answers import entries

GROUP = "Brokers"
PROXIED = Shape(proxied=True)
COMES_S = 90.0


@scenario(
    "source-leader-kill",
    group=GROUP,
    full=10,
    per_stage=5,
    struck=(BROKER_KILLED,),
    does="kill -9 of a leader at the source, and restart",
)
def source_leader_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        _kill_leaders(stage, stage.source)


@scenario(
    "destination-leader-kill", group=GROUP, full=10, per_stage=5, struck=(BROKER_KILLED,),
    does="kill -9 of a leader at the destination, and restart",
)  # fmt: skip
def destination_leader_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        _kill_leaders(stage, stage.destination)


@scenario(
    "both-leaders-kill", group=GROUP, full=10, per_stage=5, topics=EVERYONE, struck=(BROKER_KILLED.times(2),),
    does="kill -9 of a leader at both sides, and restart",
)  # fmt: skip
def both_leaders_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        _kill_leaders(stage, stage.source, stage.destination)


def _kill_leaders(stage: Stage, *sides: Side) -> None:
    stage.moment()
    topic, index = stage.chance.choice(stage.names)
    killed = [(side, side.leader(topic, index)) for side in sides]
    for side, broker in killed:
        side.kill(broker)
    stage.moment(5.0)
    for side, broker in killed:
        side.start(broker, wait=False)
    for side in sides:
        side.bring_up()
    stage.recovered()
    stage.await_replicas()  # otherwise the next broker that is killed could be the only one with all records


@scenario(
    "rolling-restart", group=GROUP, full=3, topics=EVERYONE, struck=(BROKER_RESTARTED.times(6),),
    does="every broker of both clusters, one after the other, cleanly",
)  # fmt: skip
def rolling_restart(stage: Stage) -> None:
    for _ in stage.repeat():
        # Both clusters in parallel; within a cluster, one broker after the other.
        with ThreadPoolExecutor() as threads:
            for restarted in [threads.submit(_roll, stage, side) for side in stage.pair.sides]:
                restarted.result()
        stage.recovered()


def _roll(stage: Stage, side: Side) -> None:
    for broker in side.cluster.brokers:
        side.restart(broker)
        side.await_in_sync([plan.name for plan in stage.topics])


@scenario(
    "reassignment", group=GROUP, full=6, per_stage=3, flow={"replication.factor": 2}, struck=(MOVED.times(8),),
    topics=(
        TopicPlan(name="idem-lz4", writing="idempotent", codec="lz4", partitions=2, replicas=2),
        TopicPlan(name="txn-snappy", writing="transactional", codec="snappy", partitions=2, replicas=2),
    ),
    does="every partition of both clusters is moved to other brokers",
)  # fmt: skip
def reassignment(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        for side in stage.pair.sides:
            move(side, stage.names)
        stage.recovered()


@scenario(
    "min-isr-unmet", group=GROUP, full=5, quick=1, per_stage=5, shape=PROXIED,
    struck=(BROKER_KILLED, TOO_FEW_REPLICAS),
    does="min.insync.replicas of the destination's topics is 3 and one of three brokers is down for a while",
)  # fmt: skip
def min_isr_unmet(stage: Stage) -> None:
    for plan in stage.topics:
        stage.destination.alter(plan.name, min_insync_replicas="3")
    for _ in stage.repeat():
        stage.moment()
        stage.destination.kill(stage.chance.choice(stage.destination.cluster.brokers))
        await_too_few(stage, stage.topics[0])
        stage.moment()
        stage.destination.bring_up()
        stage.recovered()
        stage.await_replicas()


NOT_ENOUGH_REPLICAS = (19, 20)


def await_too_few(stage: Stage, plan: TopicPlan) -> None:
    """Waits until a topic's records are held up at the destination because too few replicas are in sync. Either a
    broker has refused a Produce request, or records stay above the high watermark (then the mirror sends no more)."""

    def refused(answer: Frame) -> bool:
        return any(code in NOT_ENOUGH_REPLICAS for code in entries(answer.decode()).values())

    def waits(index: int) -> bool:
        view = stage.destination.view([plan.name]).get((plan.name, index))
        few = view is not None and len(view.in_sync) < len(view.replicas)
        return few and above_watermark(stage.destination.leader(plan.name, index), plan.name, index) > 0

    seen = stage.destination.network.arm("Produce", watch_answer(), where=refused)
    stage.await_that(lambda: seen.came or any(map(waits, range(plan.partitions))), TOO_FEW_REPLICAS, COMES_S)
    seen.disarm()


REQUEST_TIMEOUT_MS = 2_000


@scenario(
    "quota", group=GROUP, full=3, quick=1, per_stage=3, cluster={"request.timeout.ms": REQUEST_TIMEOUT_MS},
    shape=PROXIED, struck=(THROTTLED,),
    does="a quota at the destination throttles the mirror for longer than its request timeout",
)  # fmt: skip
def quota(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        seen = stage.destination.network.arm(
            "Produce", watch_answer(), where=lambda answer: answer.decode().throttle_time_ms > REQUEST_TIMEOUT_MS
        )
        stage.destination.limit("mirror", bytes_per_s=round(500 * stage.pace))
        stage.await_that(lambda: seen.came, THROTTLED, COMES_S)  # noqa: B023
        seen.disarm()
        stage.moment(10.0)
        stage.destination.limit("mirror", bytes_per_s=None)
        stage.recovered()


UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
VICTIM = "victim"


@scenario(
    "unclean-election-destination", group=GROUP, full=5, quick=1, bare=True,
    topics=(TopicPlan(name=VICTIM, writing="idempotent", codec="lz4", replicas=2), *HOLES),
    struck=(BROKER_KILLED.times(2), LOG_CUT_BACK),
    does="the destination loses acknowledged records by an unclean election: they are copied again",
)  # fmt: skip
def unclean_election_destination(stage: Stage) -> None:
    stage.create_topics()
    stage.destination.create([plan for plan in stage.topics if plan.name == stage.topic(VICTIM)], **_dotless(UNCLEAN))
    stage.start_stream()
    stage.start_mirror()
    stage.flowing()
    victim = stage.topic(VICTIM)

    def more() -> None:
        behind = until(lambda: stage.destination.ends([(victim, 0)]), "the end of the log")[victim, 0]
        until(
            lambda: stage.destination.ends([(victim, 0)]).get((victim, 0), 0) > behind + 20,
            lambda: f"records that the follower at the destination does not have; {stage.told()}",
        )

    def positions() -> list[int]:
        """Returns the offsets at which the mirror has located the partition, according to its log."""
        return [line["offset"] for line in stage.mirror.of("located") if line["topic"] == victim]

    known = list[int]()
    for _ in stage.repeat():
        before, after = _elect_uncleanly(stage, stage.destination, victim, more, lambda: known.extend(positions()))
        stage.recovered()
        # The mirror may have copied the lost records again before the end was asked for. Then its log says where it
        # found the end. What it said before the leader was killed, when the log was shorter, tells nothing about the
        # election.
        least = min([after, *positions()[len(known) :]])
        known.clear()
        stage.seen(LOG_CUT_BACK, int(least < before))
        stage.note("records lost and copied again", max(0, before - least))


@scenario(
    "unclean-election-source", group=GROUP, full=5, quick=1, bare=True,
    topics=(TopicPlan(name=VICTIM, writing="nobody", replicas=2, configs=UNCLEAN), *HOLES),
    struck=(BROKER_KILLED.times(2), LOG_CUT_BACK),
    does="the source loses copied records by an unclean election: that partition halts, the others go on",
)  # fmt: skip
def unclean_election_source(stage: Stage) -> None:
    victim = stage.topic(VICTIM)
    stage.create_topics()
    write(stage.source, victim, WRITTEN)
    stage.start_stream()
    stage.start_mirror()
    stage.flowing()
    held: dict[int, bytes] = {}

    def more() -> None:
        write(stage.source, victim, WRITTEN, seed=1)
        stage.caught_up([(victim, 0)])
        held.update(stage.holds(victim))
        # The source will have fewer records from now on, so the comparison uses those that it has now.
        stage.halts.announce(victim, "source_truncated", ends=(2 * WRITTEN, 2 * WRITTEN), right=held)

    for _ in stage.repeat():
        before, after = _elect_uncleanly(stage, stage.source, victim, more)
        stage.seen(LOG_CUT_BACK, int(after < before))
        stage.halts.expect(victim)


WRITTEN = 50


def _elect_uncleanly(
    stage: Stage, side: Side, topic: str, more: Callable[[], None], about_to: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    """Kills the follower of partition 0, lets the leader go on alone, kills the leader, and starts the follower: the
    new records of the leader are lost.

    Args:
        stage: the stage.
        side: the cluster.
        topic: name of the topic.
        more: writes or copies some records that the follower does not get.
        about_to: called just before the leader is killed.

    Returns:
        The end offset of the log before the leader was killed, and that after the election.
    """
    leader, follower = side.leader(topic), side.followers(topic)[0]
    side.kill(follower)
    until(
        lambda: [view.in_sync for view in side.view([topic]).values()] == [(leader.node_id,)],
        f"broker {leader.node_id} to be the only one in sync",
    )
    stage.caught_up()
    more()
    before = until(lambda: side.ends([(topic, 0)]), "the end of the log")[topic, 0]
    about_to()
    side.kill(leader)
    side.start(follower, wait=False)

    def elected() -> bool:
        side.elect(topic, 0)
        view = side.view([topic]).get((topic, 0))
        return view is not None and view.leader == follower.node_id

    until(elected, f"{topic}-0 to be led by broker {follower.node_id} of the {side.name} cluster")
    after = until(lambda: side.ends([(topic, 0)]), "the end of the log")[topic, 0]
    side.bring_up()
    return before, after


def _dotless(configs: dict[str, str]) -> dict[str, str]:
    return {key.replace(".", "_"): value for key, value in configs.items()}
