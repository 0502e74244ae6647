"""Whether the mirror does its work, and if not, why: for ``/-/ready``, the status and the command line. Pure."""

from mirror.service.fleet import Fleet


def unready(fleet: Fleet, *, started: bool) -> list[str]:
    """Why it is not ready, a reason each; empty: it is.

    Args:
        fleet: what is known of the workers.
        started: whether they have begun to copy.
    """
    reasons = list(dict.fromkeys(worker.waits for worker in fleet.workers.values() if worker.waits))
    if not started and not reasons:
        reasons.append("the workers are starting")
    if fleet.none_goes_on:
        reasons.append(f"every partition here is halted ({len(fleet.halted)}): see mirror status")
    if started:
        reasons += [f"cluster {name} does not answer" for name, up in fleet.clusters.items() if not up]
        reasons += [
            f"worker {worker.number} is not in the group"
            for worker in fleet.workers.values()
            if worker.up and not worker.waits and not worker.joined
        ]
    return reasons
