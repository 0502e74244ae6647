"""Scenarios with ``offsets: mapped``: batches are appended at the end of the destination's log, among records of other
writers."""

from chaos.play.stage import Stage
from chaos.producers.topics import PLAIN
from chaos.producers.writing import add, transactional
from chaos.scenario import scenario
from chaos.scenarios.data import OLD, SHAPE, await_swept, is_open
from chaos.scenarios.network import COMES_S, PROXIED, WIRED
from chaos.witness.probes import known_as
from lab.evidence import FRAME_CUT, LATE, OPEN_TRANSACTION, STATE_SWEPT, WORKER_KILLED
from lab.proxy import Frame, cut_answer, hold_request
from lab.proxy.answers import carries

GROUP = "Data"
MAPPED = {"offsets": "mapped"}


@scenario("mapped-unanswered", group=GROUP, full=5, quick=1, per_stage=5, shape=PROXIED, topics=WIRED, flow=MAPPED,
          exact=False, struck=(FRAME_CUT.times(2), WORKER_KILLED),
          does="mapped: a Produce request is done and not answered, twice; then a worker is killed")  # fmt: skip
def unanswered(stage: Stage) -> None:
    for _ in stage.repeat():
        for killed in (False, True):
            stage.destination.network.arm("Produce", cut_answer()).wait(COMES_S)
            if killed:
                stage.mirror.kill_worker()
            stage.recovered()


@scenario("mapped-late-data", group=GROUP, full=10, quick=2, per_stage=5, shape=PROXIED, topics=WIRED, flow=MAPPED,
          exact=False, struck=(WORKER_KILLED, LATE),
          does="mapped: a dead worker's request arrives while or after its successor goes on")  # fmt: skip
def late_data(stage: Stage) -> None:
    for at in stage.repeat():
        held = stage.destination.network.arm("Produce", hold_request())
        held.wait(COMES_S)
        stage.mirror.kill_worker()
        if at % 2:
            stage.caught_up()
        held.deliver()
        held.answer(COMES_S)
        stage.recovered()


@scenario("mapped-old", group=GROUP, full=6, quick=1, per_stage=3, shape=SHAPE, topics=(OLD, PLAIN[1]), flow=MAPPED,
          exact=False, struck=(STATE_SWEPT, FRAME_CUT, WORKER_KILLED),
          does="mapped: records two days old, producer state swept; a worker is killed with a request of them not "
          "answered")  # fmt: skip
def old(stage: Stage) -> None:
    topic = stage.topic(OLD.name)

    wanted = known_as(stage.destination, topic)

    def about_it(answer: Frame) -> bool:
        return answer.request is not None and carries(answer.request, wanted)

    for _ in stage.repeat():
        await_swept(stage, topic)
        stage.destination.network.arm("Produce", cut_answer(), where=about_it).wait(COMES_S)
        stage.mirror.kill_worker()
        stage.recovered()


@scenario("mapped-open-transaction", group=GROUP, full=4, quick=1, per_stage=2, shape=PROXIED, topics=WIRED,
          flow=MAPPED, exact=False, struck=(OPEN_TRANSACTION, WORKER_KILLED),
          does="mapped: somebody's transaction stays open at the destination; a worker is killed")  # fmt: skip
def open_transaction(stage: Stage) -> None:
    topic = stage.topic("idem-zstd")
    producer = transactional(stage.destination, f"stranger-{topic}")
    for at in stage.repeat():
        producer.begin_transaction()
        add(producer, topic, 5, seed=1_000 + at)
        producer.flush(COMES_S)
        stage.strangers[topic, 0] += 5
        stage.caught_up()  # not recovered(): no fault has ended
        stage.mirror.kill_worker()
        stage.recovered()
        stage.seen(OPEN_TRANSACTION, is_open(stage.destination, topic))
        producer.abort_transaction(COMES_S)
        stage.recovered()
