"""Brokers die, freeze, restart, move partitions, refuse and forget."""

import time
from concurrent.futures import ThreadPoolExecutor

from chaos.errors import ChaosError
from chaos.raw import plant
from chaos.scenario import scenario
from chaos.sides import Side
from chaos.stage import Stage
from chaos.topics import EVERYONE, HOLES, TopicPlan
from chaos.waiting import until
from mirror.records.filler import filler_batch
from mirror.records.identity import Identity

GROUP = "Brokers"
FREEZE_MOST_S = 3.0
"""Less than the brokers' session timeout now and then, more at other times."""


@scenario(
    "source-leader-kill", group=GROUP, full=10, per_stage=5, does="kill -9 of a leader at the source, and restart"
)
def source_leader_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        _kill_leaders(stage, stage.source)


@scenario(
    "destination-leader-kill", group=GROUP, full=10, per_stage=5,
    does="kill -9 of a leader at the destination, and restart",
)  # fmt: skip
def destination_leader_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        _kill_leaders(stage, stage.destination)


@scenario(
    "both-leaders-kill", group=GROUP, full=10, per_stage=5, topics=EVERYONE,
    does="kill -9 of a leader at both sides, and restart",
)  # fmt: skip
def both_leaders_kill(stage: Stage) -> None:
    for _ in stage.repeat():
        _kill_leaders(stage, stage.source, stage.destination)


def _kill_leaders(stage: Stage, *sides: Side) -> None:
    stage.moment()
    topic, index = stage.chance.choice(stage.names)
    killed = [side.leader(topic, index) for side in sides]
    for broker in killed:
        broker.kill()
    stage.moment(5.0)
    for broker in killed:
        broker.start(wait=False)
    for side in sides:
        side.bring_up()
    stage.recovered()
    stage.await_replicas()  # or the next one to be killed would be the last that has everything


@scenario(
    "rolling-restart", group=GROUP, full=3, topics=EVERYONE,
    does="every broker of both clusters, one after the other, cleanly",
)  # fmt: skip
def rolling_restart(stage: Stage) -> None:
    for _ in stage.repeat():
        # Both clusters at the same time, each one broker after the other.
        with ThreadPoolExecutor() as threads:
            for restarted in [threads.submit(_roll, stage, side) for side in stage.pair.sides]:
                restarted.result()
        stage.recovered()


def _roll(stage: Stage, side: Side) -> None:
    for broker in side.cluster.brokers:
        broker.stop()
        broker.start()
        side.await_in_sync([plan.name for plan in stage.topics])


@scenario(
    "reassignment", group=GROUP, full=6, per_stage=3, flow={"replication.factor": 2},
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
            views = until(lambda side=side: side.view([plan.name for plan in stage.topics]), "the replicas")  # type: ignore[misc]
            everyone = [broker.node_id for broker in side.cluster.brokers]
            side.reassign({
                # The broker that has none of it becomes the leader, the leader goes.
                name: [*(set(everyone) - set(view.replicas)), *(one for one in view.replicas if one != view.leader)]
                for name, view in views.items()
            })  # fmt: skip
        stage.recovered()


@scenario(
    "follower-freeze", group=GROUP, full=10, per_stage=5,
    does="SIGSTOP of a follower at the destination, so that data and markers stand above the high watermark; "
    "kill -9 of the worker; SIGCONT",
)  # fmt: skip
def follower_freeze(stage: Stage) -> None:
    for _ in stage.repeat():
        topic, index = stage.chance.choice(stage.names)
        follower = stage.chance.choice(stage.destination.followers(topic, index))
        stage.destination.pause(follower)
        stage.moment()
        stage.mirror.kill_worker()
        stage.moment(FREEZE_MOST_S)
        stage.destination.resume(follower)
        stage.recovered()
        stage.await_replicas()


@scenario(
    "destination-freeze", group=GROUP, full=30, quick=1, per_stage=10, topics=HOLES, rate=25.0,
    does="SIGSTOP of the destination's leader and kill -9 of the worker with a marker just sent; then SIGCONT",
)  # fmt: skip
def destination_freeze(stage: Stage) -> None:
    dense = stage.topic("txn-dense")
    for _ in stage.repeat():
        stage.moment()
        leader = stage.destination.leader(dense)
        stage.destination.pause(leader)
        stage.moment(0.3)  # what is sent now waits in the frozen broker's socket
        stage.mirror.kill_worker()
        stage.moment(FREEZE_MOST_S)
        stage.destination.resume(leader)
        stage.recovered()
        stage.await_replicas()


@scenario(
    "filling-leader-kill", group=GROUP, full=20, quick=1, per_stage=5, topics=HOLES, rate=25.0,
    does="kill -9 of the destination's leader during continuous filling, and restart",
)  # fmt: skip
def filling_leader_kill(stage: Stage) -> None:
    dense = stage.topic("txn-dense")
    for _ in stage.repeat():
        stage.moment()
        leader = stage.destination.leader(dense)
        leader.kill()
        stage.moment(5.0)
        stage.destination.bring_up()
        stage.recovered()
        stage.await_replicas()


@scenario(
    "filling-all-killed", group=GROUP, full=5, quick=1, per_stage=5, topics=HOLES, rate=25.0,
    does="kill -9 of the mirror and of all brokers of the destination during filling",
)  # fmt: skip
def filling_all_killed(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        _kill_destination(stage)
        stage.recovered()


LEADING = 2_000_000
MILLION = 1_000_000
FAR = 50_000_000


@scenario(
    "trimmed-all-killed", group=GROUP, full=5, quick=1, bare=True,
    topics=(
        TopicPlan(name="idem-lz4", writing="idempotent", codec="lz4", partitions=2),
        TopicPlan(name="txn-none", writing="transactional"),
    ),
    does="the source begins at offset 2,000,000; kill -9 of the mirror and of all brokers of the destination within "
    "60 s after DeleteRecords there",
)  # fmt: skip
def trimmed_all_killed(stage: Stage) -> None:
    _trimmed(stage, LEADING)


@scenario(
    "starts-at-50-million", group=GROUP, full=1, quick=1, bare=True,
    topics=(TopicPlan(name="txn-none", writing="transactional"),),
    does="the same with a source that begins at offset 50,000,000",
)  # fmt: skip
def starts_at_50_million(stage: Stage) -> None:
    _trimmed(stage, FAR)


def _trimmed(stage: Stage, start: int) -> None:
    stage.check_starts = True
    stage.create_topics()
    for topic, index in stage.names:
        _lead(stage.source, topic, index, start)
    stage.source.delete_before(dict.fromkeys(stage.names, start))
    stage.start_stream()
    began_at = time.monotonic()
    stage.start_mirror()
    wanted = dict.fromkeys(stage.names, start)

    def trimmed() -> bool:
        stage.look()
        return stage.destination.starts(stage.names) == wanted

    for _ in stage.repeat():
        until(trimmed, lambda: f"the destination to begin at {start}; {stage.told()}")
        stage.note("seconds until the destination began there", round(time.monotonic() - began_at))
        stage.moment()
        _kill_destination(stage)
        stage.recovered()
        until(trimmed, lambda: f"the destination to begin at {start} again; {stage.told()}")


def _lead(side: Side, topic: str, index: int, end: int) -> None:
    """Empty records up to an offset, a million at a time."""
    for offset in range(0, end, MILLION):
        batch = filler_batch(producer=1 << 40, offset=offset, count=MILLION, timestamp=round(time.time() * 1000))
        plant(side, topic, index, batch, Identity(1 << 40, 0, offset))


def _kill_destination(stage: Stage) -> None:
    stage.mirror.kill()
    for broker in stage.destination.cluster.brokers:
        broker.kill()
    stage.destination.bring_up()
    stage.mirror.start()


@scenario(
    "min-isr-unmet", group=GROUP, full=5, quick=1, per_stage=5,
    does="min.insync.replicas of the destination's topics is 3 and one of three brokers is down for a while",
)  # fmt: skip
def min_isr_unmet(stage: Stage) -> None:
    for plan in stage.topics:
        stage.destination.alter(plan.name, min_insync_replicas="3")
    for _ in stage.repeat():
        stage.moment()
        broker = stage.chance.choice(stage.destination.cluster.brokers)
        broker.kill()
        stage.moment(8.0)
        stage.destination.bring_up()
        stage.recovered()
        stage.await_replicas()


@scenario(
    "quota", group=GROUP, full=3, quick=1, per_stage=3, cluster={"request.timeout.ms": 2_000},
    does="a quota at the destination throttles the mirror for longer than its request timeout",
)  # fmt: skip
def quota(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.moment()
        stage.destination.limit("mirror", bytes_per_s=round(500 * stage.pace))
        stage.moment(20.0)
        stage.destination.limit("mirror", bytes_per_s=None)
        stage.recovered()


UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
VICTIM = "victim"


@scenario(
    "unclean-election-destination", group=GROUP, full=5, quick=1, bare=True,
    topics=(TopicPlan(name=VICTIM, writing="idempotent", codec="lz4", replicas=2), *HOLES),
    does="the destination loses acknowledged records by an unclean election: they are copied again",
)  # fmt: skip
def unclean_election_destination(stage: Stage) -> None:
    stage.create_topics()
    stage.destination.create([plan for plan in stage.topics if plan.name == stage.topic(VICTIM)], **_dotless(UNCLEAN))
    stage.start_stream()
    stage.start_mirror()
    stage.flowing()
    for _ in stage.repeat():
        victim = stage.topic(VICTIM)
        before = _elect_uncleanly(stage, stage.destination, victim)
        stage.recovered()
        # Where it went on, by its own words: not where it was.
        positions = [line["offset"] for line in stage.mirror.of("located") if line["topic"] == victim]
        if positions[-1] >= before:
            raise ChaosError(f"the destination lost nothing by its unclean election: {before} and {positions}")
        stage.note("records lost and copied again", before - positions[-1])


@scenario(
    "unclean-election-source", group=GROUP, full=5, quick=1,
    topics=(TopicPlan(name=VICTIM, writing="idempotent", codec="lz4", replicas=2, configs=UNCLEAN), *HOLES),
    does="the source loses copied records by an unclean election: that partition halts, the others go on",
)  # fmt: skip
def unclean_election_source(stage: Stage) -> None:
    for _ in stage.repeat():
        _elect_uncleanly(stage, stage.source, stage.topic(VICTIM))
        stage.expect_halt(stage.topic(VICTIM), 0, "source_truncated", "not_a_copy")


def _elect_uncleanly(stage: Stage, side: Side, topic: str) -> int:
    """The follower dies, the leader goes on alone and dies, the follower comes back: what the leader had alone is lost.

    Returns:
        The log's end before that.
    """
    leader, follower = side.leader(topic), side.followers(topic)[0]
    follower.kill()
    until(
        lambda: [view.in_sync for view in side.view([topic]).values()] == [(leader.node_id,)],
        f"broker {leader.node_id} to be the only one in sync",
    )
    stage.caught_up()
    behind = until(lambda: stage.destination.ends([(topic, 0)]), "the end of the log")[topic, 0]
    until(
        lambda: stage.destination.ends([(topic, 0)]).get((topic, 0), 0) > behind + 20,
        lambda: f"records that the follower at the {side.name} does not have; {stage.told()}",
    )
    before = until(lambda: side.ends([(topic, 0)]), "the end of the log")[topic, 0]
    leader.kill()
    follower.start(wait=False)

    def elected() -> bool:
        side.elect(topic, 0)
        view = side.view([topic]).get((topic, 0))
        return view is not None and view.leader == follower.node_id

    until(elected, f"{topic}-0 to be led by broker {follower.node_id} of the {side.name} cluster")
    side.bring_up()
    return before


def _dotless(configs: dict[str, str]) -> dict[str, str]:
    return {key.replace(".", "_"): value for key, value in configs.items()}
