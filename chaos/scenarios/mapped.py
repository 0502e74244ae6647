"""Offsets mapped: batches are appended where the destination's log ends, beside what others write there."""

from chaos.proxy import cut_answer, hold_request
from chaos.scenario import scenario
from chaos.scenarios.data import OLD
from chaos.scenarios.network import COMES_S, PROXIED, WIRED
from chaos.stage import Stage
from chaos.topics import PLAIN
from chaos.writing import add, transactional

GROUP = "Data"
MAPPED = {"offsets": "mapped"}


@scenario("mapped-unanswered", group=GROUP, full=10, quick=2, per_stage=5, shape=PROXIED, topics=WIRED, flow=MAPPED,
          exact=False, does="mapped: a Produce request is done and not answered; a worker is killed")  # fmt: skip
def unanswered(stage: Stage) -> None:
    for at in stage.repeat():
        stage.destination.network.arm("Produce", cut_answer()).wait(COMES_S)
        if at % 2:
            stage.mirror.kill_worker()
        stage.recovered()


@scenario("mapped-late-data", group=GROUP, full=10, quick=2, per_stage=5, shape=PROXIED, topics=WIRED, flow=MAPPED,
          exact=False, does="mapped: a dead worker's request arrives while or after its successor goes on")  # fmt: skip
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


@scenario("mapped-old", group=GROUP, full=6, quick=1, per_stage=3, shape=PROXIED, topics=(OLD, PLAIN[1]), flow=MAPPED,
          exact=False, does="mapped: records two days old; a worker is killed with a request not answered")  # fmt: skip
def old(stage: Stage) -> None:
    for _ in stage.repeat():
        stage.destination.network.arm("Produce", cut_answer()).wait(COMES_S)
        stage.mirror.kill_worker()
        stage.recovered()


@scenario("mapped-open-transaction", group=GROUP, full=4, quick=1, per_stage=2, shape=PROXIED, topics=WIRED,
          flow=MAPPED, exact=False,
          does="mapped: somebody's transaction stays open at the destination; a worker is killed")  # fmt: skip
def open_transaction(stage: Stage) -> None:
    topic = stage.topic("idem-zstd")
    producer = transactional(stage.destination, f"stranger-{topic}")
    for at in stage.repeat():
        producer.begin_transaction()
        add(producer, topic, 5, seed=1_000 + at)
        producer.flush(COMES_S)
        stage.strangers[topic, 0] += 5
        stage.recovered()
        stage.mirror.kill_worker()
        stage.recovered()
        producer.abort_transaction(COMES_S)
        stage.recovered()
