"""What may go wrong in a run, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.model.site import Site
from tests.simulation.source import DAY_MS

if TYPE_CHECKING:
    from tests.simulation.checks import Copy
    from tests.simulation.run import Run


def some(run: Run) -> Site:
    """One of the destination's partitions."""
    partitions = run.there.partitions
    return partitions[0] if len(partitions) == 1 else run.chance.choice(partitions)


def kill_and_replace(run: Run) -> None:
    """kill -9 of one, and another comes."""
    if run.alive:
        run._replace(run.chance.choice(run.alive))


def second_worker(run: Run) -> None:
    """Another takes over while the first goes on."""
    if len(run.alive) < 3:
        run.hire()


def pause_worker(run: Run) -> None:
    """SIGSTOP; often another takes over meanwhile."""
    if run.alive:
        run.chance.choice(run.alive).pause(run.chance.choice([0.2, 2.0, 15.0]) * run.chance.random())
        if run.chance.random() < 0.5:
            second_worker(run)


def cut_links(run: Run) -> None:
    """Some of a worker's connections end."""
    if run.alive:
        run._cut(run.chance.choice(run.alive))


def fail_over(run: Run) -> None:
    """The destination's leader dies, or only loses the leadership."""
    if not run.calm:
        some(run).fail_over(crash=run.chance.random() < 0.5)


def flip(run: Run) -> None:
    """The leadership goes to another broker and back: connections stay, and a produce request names no epoch."""
    if not run.calm:
        site = some(run)
        back = site.leader
        site.fail_over(crash=False)
        run.loop.call_later(run.chance.choice([0.01, 0.5]) * run.chance.random(), _flip_back, run, site, back)


def _flip_back(run: Run, site: Site, back: int) -> None:
    if not run.calm and site.leader != back and site.brokers[back].up:
        site.fail_over(crash=False, to=back)


def pause_broker(run: Run) -> None:
    """SIGSTOP of one of the destination's leaders."""
    broker = run.there.brokers[some(run).leader]
    broker.pause()
    run.trace("dest", "broker {} is stopped", broker.node_id)
    run.loop.call_later(run.chance.choice([0.1, 2.0, 14.0]) * run.chance.random(), broker.resume, run.chance)


def stall_followers(run: Run) -> None:
    """Nothing of a partition is replicated for a while."""
    site = some(run)
    site.stall(stalled=True)
    run.trace(_told(site), "the followers stall")
    run.loop.call_later(run.chance.choice([0.5, 3.0, 14.0]) * run.chance.random(), _follow, run, site)


def _follow(run: Run, site: Site) -> None:
    run.trace(_told(site), "the followers follow")
    site.stall(stalled=False)


def _told(site: Site) -> str:
    return f"dest/{site.index}" if site.index else "dest"


def restart_all(run: Run) -> None:
    """Every broker of the destination."""
    run.there.restart(clean=run.chance.random() < 0.5)


def odd_errors(run: Run) -> None:
    """Appends are answered with errors, done or not, for a while."""
    site = some(run)
    site.odd = run.chance.choice([0.1, 0.3])
    run.loop.call_later(run.chance.uniform(0.1, 3), setattr, site, "odd", 0.0)


def too_few_replicas(run: Run) -> None:
    """min.insync.replicas is not met for a while."""
    model = some(run).model
    model.enough_replicas = False
    run.loop.call_later(run.chance.uniform(0.1, 5), setattr, model, "enough_replicas", True)


def sweep(run: Run) -> None:
    """The brokers forget the producers of old records."""
    for site in run.there.partitions:
        site.model.sweep(run.there.now_ms - DAY_MS)
    run.trace("dest", "old producers are forgotten")


def clean_source(run: Run) -> None:
    """Compaction takes a batch that the source has had for a while."""
    copy = run.chance.choice(run.partitions)
    base = copy.source.clean()
    if base is not None:
        run.trace("source", "the cleaner takes the batch at {} of partition {}", base, copy.index)


def lag(run: Run) -> None:
    """Another broker leads a partition of the source, and does not know for a while how much of it everybody has."""
    copy = run.chance.choice(run.partitions)
    site = copy.here
    bases = [one.header.base_offset for one in site.model.batches]
    if bases:
        site.fail_over(crash=run.chance.random() < 0.5)
        site.known = run.chance.choice([bases[-1], run.chance.choice(bases[-6:]), run.chance.choice(bases)])
        run.trace("source", "partition {} shows what is before {}", copy.index, site.known)
        run.loop.call_later(run.chance.choice([0.1, 2.0, 15.0]) * run.chance.random(), site.learn_all)


def truncate(run: Run) -> None:
    """A partition of the source has an unclean election: its log ends before, and goes on with other records. What the
    old leader shows to those who have not heard of it is what it had."""
    copy = run.chance.choice(run.partitions)
    source, site, cuts = copy.source, copy.here, copy.source.cuts()
    if not cuts:
        return
    end = run.chance.choice([cuts[-1], run.chance.choice(cuts[-4:]), run.chance.choice(cuts)])
    copy.look_at_new()
    former = source.before_it_is_cut()
    site.known = None
    site.fail_over(crash=run.chance.random() < 0.5, lose_from=end)
    source.cut()
    copy.lose_end(former)
    run.trace("source", "partition {} has lost what was behind {}", copy.index, end)
    for _ in range(run.chance.choice([0, 3, 30])):
        if not source.finished:
            source.grow(run.there.now_ms)
    site.grown()
    run.go_on_growing()


def clean_destination(run: Run) -> None:
    """Its cleaner takes a batch, or a marker: any that is replicated but the last one, which nothing supersedes."""
    model = (site := some(run)).model
    candidates = [at for at, one in enumerate(model.batches) if one.header.next_offset <= model.replicated][:-1]
    if candidates:
        at = run.chance.choice(candidates)
        base = model.batches[at].header.base_offset
        for copy in run.partitions:
            if copy.there is site:
                copy.look_at_new()  # what nobody has seen is to be seen before it goes
        if model.clean(at):
            run.trace(_told(site), "the cleaner takes what stands at {}", base)


def empty(run: Run, copy: Copy | None = None) -> None:
    """A partition's records at the destination expire, all of them; or are deleted, which a kill -9 of its brokers may
    take back. ``copy``: of this partition; None: of any."""
    copy = copy or run.chance.choice(run.partitions)
    model = copy.there.model
    if model.start < model.replicated:
        model.delete_before(model.replicated)
        if run.chance.random() < 0.7:
            model.checkpoint()
        copy.emptied = True
        run.trace(_told(copy.there), "its records are gone: it begins at {}", model.start)


EVENTS: tuple[list[Callable[[Run], None]], list[int]] = (
    [
        kill_and_replace,
        second_worker,
        pause_worker,
        cut_links,
        fail_over,
        flip,
        pause_broker,
        stall_followers,
        restart_all,
        odd_errors,
        too_few_replicas,
        sweep,
    ],
    [20, 10, 15, 20, 8, 8, 6, 8, 4, 8, 3, 8],
)
"""What may go wrong, and how often."""
