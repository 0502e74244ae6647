"""What happens to the logs in a run with ``offsets: mapped``, beside the failures of ``tests.simulation.run``: others
write, both sides delete and clean, a topic is made anew, days pass."""

import asyncio
from typing import TYPE_CHECKING

from mirror.records.header import HEADER_SIZE, PREFIX_SIZE
from tests.records.builders import raw_batch
from tests.simulation.mapped.checks import side_of
from tests.simulation.mapped.source import generation, name_in
from tests.simulation.model.broker import Stored
from tests.simulation.source import DAY_MS

if TYPE_CHECKING:
    from tests.simulation.mapped.run import MappedRun

REST_S = 20.0
"""Virtual seconds in which all has to be copied and quiet, or no idle time begins."""
ROLLED_S = 2.0
"""A batch is in a segment that is cleaned after so many virtual seconds."""


async def things_happen(run: "MappedRun") -> None:
    """Any of it, as the run's taste is."""
    chance, taste = run.chance, run.taste
    if chance.random() < taste.others:
        others_write(run, chance.randint(1, 4))
    for name, source in run.sources.items():
        if chance.random() < taste.cleaned_here:
            source.clean()
        if taste.returned_here and chance.random() < taste.returned_here:
            source.bring_back()
        if chance.random() < taste.deleted_here:
            source.delete(run.copies.upto(name))
        if chance.random() < taste.recreated and not generation(source.model):
            await recreate(run, name)
        if taste.truncated and chance.random() < taste.truncated:
            truncate(run, name)
        if chance.random() < taste.lagging:
            lag(run, name)
    await happen_there(run)
    if chance.random() < taste.idle:
        await idle(run)
    if chance.random() < 0.1 and run.alive:
        await run.stop(chance.choice(run.alive))


async def happen_there(run: "MappedRun") -> None:
    """To the destination's log."""
    chance, taste = run.chance, run.taste
    if taste.remade and not generation(run.there.model) and chance.random() < taste.remade:
        await remake(run)
    if chance.random() < taste.deleted_there:
        delete_there(run)
    if chance.random() < taste.cleaned_there:
        clean_there(run)


def others_write(run: "MappedRun", count: int) -> None:
    """Somebody else's batch, at the leader that knows that it is one."""
    run.others += 1
    batch = raw_batch(
        b"other %d" % run.others,
        base_offset=0,
        leader_epoch=-1,
        last_offset_delta=count - 1,
        record_count=count,
        base_timestamp=run.there.now_ms,
        max_timestamp=run.there.now_ms,
    )
    run.there.produce("other", run.there.leader, batch, lambda _: None)


def delete_there(run: "MappedRun") -> None:
    """DeleteRecords at the destination, often of everything."""
    model = run.there.model
    bases = [one.header.base_offset for one in model.batches if model.start < one.header.base_offset < model.replicated]
    model.delete_before(run.chance.choice([model.replicated, *bases[-3:], *bases[:1]]))
    run.gone.before = max(run.gone.before, model.start)
    run.trace("dest", "records before {} are deleted", model.start)


def clean_there(run: "MappedRun") -> None:
    """The destination's cleaner takes a batch, none of the last, which lie in the active segment. Of a producer that
    the leader remembers, the last batch stays, emptied."""
    model, now = run.there.model, run.loop.time()
    candidates = [
        at
        for at, one in enumerate(model.batches[:-4])
        if not one.header.is_control and now - run.copies.seen_at.get(one.header.base_offset, now) > ROLLED_S
    ]
    if not candidates:
        return
    at = run.chance.choice(candidates)
    stored = model.batches[at]
    header = stored.header
    state = model.producers.get(header.producer_id)
    if state is not None and (header.producer_epoch, header.last_sequence) == (state.epoch, state.last_sequence):
        empty = header._replace(record_count=0, length=HEADER_SIZE - PREFIX_SIZE)
        model.batches[at] = Stored(empty, empty.pack())
    else:
        del model.batches[at]
    run.gone.cleaned.append(stored)
    run.trace("dest", "the cleaner takes the batch at {}", header.base_offset)


async def recreate(run: "MappedRun", name: str) -> None:
    """A source topic is made anew under its name, while it is copied or while nobody runs; often the new one is longer
    than the old one was. As long as nothing of it was copied, nobody runs, so that it is certain which one will be."""
    undecided = run.known.checkpoint(side_of(name)) is not None and not run.copies.own[name]
    alive = run.alive if undecided or run.chance.random() < 0.5 else []
    for worker in alive:
        worker.kill()
    if alive:
        await asyncio.sleep(run.weather.late)
    source = run.sources[name]
    if undecided:
        run.there.replicated()
    # What was sent before may stand in a log whose followers stall: nobody has seen it, and it is a copy all the same.
    sent = any(name_in(stored.payload) == name for stored in run.there.model.batches if not stored.header.is_control)
    run.here.known_of.pop(name, None)
    run.here.models[name] = source.recreate(begun=sent or bool(run.copies.own[name]))
    for _ in range(run.chance.choice([0, 3, 30])):
        source.grow(run.there.now_ms)
    run.here.grown()
    run.grow()
    if alive:
        run.hire()


def truncate(run: "MappedRun", name: str) -> None:
    """A source topic loses the end of its log. What stands at the destination is replicated, so that it is certain
    whether any of that was copied."""
    run.there.replicated()
    source = run.sources[name]
    run.here.models[name] = source.truncate(run.copies.upto(name))
    for _ in range(run.chance.choice([0, 3, 30])):
        source.grow(run.there.now_ms)
    run.here.grown()
    run.grow()


def lag(run: "MappedRun", name: str) -> None:
    """Another broker leads a source topic, and does not know for a while how much of it everybody has."""
    known = run.sources[name].elect()
    if known is not None:
        run.here.known_of[name] = known
        run.loop.call_later(run.chance.choice([0.1, 2.0, 15.0]) * run.chance.random(), run.here.learn_all_of, name)


async def remake(run: "MappedRun") -> None:
    """The destination topic is made anew under its name, while it is copied to or while nobody runs. What stands in the
    old one is replicated, so that it is certain whether that has a copy."""
    alive = run.alive if run.chance.random() < 0.5 else []
    for worker in alive:
        worker.kill()
    if alive:
        await asyncio.sleep(run.weather.late)
    run.there.replicated()
    run.copies.look(run.loop.time())
    run.there.remake()
    run.copies.remade(run.known)
    run.gone.before, run.gone.cleaned = 0, []
    others_write(run, run.chance.randint(1, 4))
    run.grow()
    if alive:
        run.hire()


async def idle(run: "MappedRun") -> None:
    """All is copied, and for days nothing is written. Who is running uses its ids; who is stopped does not."""
    run.resting = True
    until = run.loop.time() + REST_S
    while not at_rest(run) and run.loop.time() < until:
        await asyncio.sleep(0.1)
        run.check_workers()
    if at_rest(run):
        running = [worker for worker in run.alive if not worker.process.paused]
        _leave_stopped(run)
        await asyncio.sleep(run.weather.late)
    if at_rest(run):
        days = run.chance.choice([2, 8, 20])
        if run.chance.random() < 0.3:
            for worker in running:
                worker.kill()
            running = []
        for _ in range(2 * days):
            run.loop.skipped_s += DAY_MS / 2000
            for worker in running:
                if not worker.process.dead and not worker.process.paused:
                    run.loop.create_task(worker.renew())
            await asyncio.sleep(0.05)
            run.there.model.sweep(run.there.now_ms - DAY_MS)
        run.there.forget_ids()
        run.trace("run", "nothing is written for {} days", days)
        if not run.alive:
            run.hire()
    run.resting = False


def _leave_stopped(run: "MappedRun") -> None:
    """Brokers close the connections of a process that is stopped for days. Nobody is between two requests."""
    for worker in run.alive:
        if worker.process.paused and not worker.settled:
            worker.kill()
        elif worker.process.paused:
            for link in [*worker.here.links, *worker.there.links]:
                link.cut()


def at_rest(run: "MappedRun") -> bool:
    """Nothing is on its way, or will be: no bytes are under way for days."""
    model, running = run.there.model, [worker for worker in run.alive if not worker.process.paused]
    return (
        model.end == model.replicated
        and bool(running)
        and all(worker.settled for worker in running)
        and not any(worker.sending or worker.lags for worker in running)
        and not any(link.late or link.waiting for broker in run.there.brokers.values() for link in broker.links)
        and not any(broker.paused for broker in run.there.brokers.values())
        and not run.here.known_of
    )
