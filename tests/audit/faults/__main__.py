"""``make audit-faults``: random faults in the logs of real brokers, each of which the audit has to find, and nothing
else. ``python -m tests.audit.faults COUNT SEED``."""

import sys
import time
from collections import Counter

from mirror.audit.model.places import Side
from mirror.audit.spark.session import LocalSession
from mirror.sandbox import SandboxCluster
from tests.audit.faults.grid import Grid
from tests.audit.faults.random import LENGTH, grown, unlike
from tests.patience import PATIENT

COUNT, SEED = 10_000, 1
TOPICS = 120
"""Of a round; each round has brokers of its own."""


def main(count: int, seed: int) -> int:
    """See the module's text.

    Returns:
        The exit code: 1 if anything was not found, or found and not due.
    """
    began_at = time.monotonic()
    told: Counter[str] = Counter()
    wrong = done = rounds = 0
    with LocalSession() as session:
        while done < count:
            seeds = range(seed + rounds * TOPICS, seed + (rounds + 1) * TOPICS)
            rounds += 1
            with (
                SandboxCluster(name="source", properties=PATIENT, quick=True) as source,
                SandboxCluster(name="destination", properties=PATIENT, quick=True) as destination,
            ):
                grid = Grid({Side.SOURCE: source, Side.DESTINATION: destination}, length=LENGTH)
                due = grown(grid, {f"seed-{one}": one for one in seeds})
                grid.lay()
                seen = grid.audit(session.spark)
            for topic, wanted in due.items():
                done += len(wanted)
                told.update(one.kind.value for one in wanted)
                why = unlike(seen[topic].findings, wanted)
                if why:
                    wrong += 1
                    print(f"{topic} ({grid.shapes[topic].value}): {why}", flush=True)
                    for found in seen[topic].findings:
                        print(f"  {found.kind.value} {found.source} {found.destination} {found.detail}", flush=True)
            print(f"{done} faults in {rounds * TOPICS} copies, {wrong} copies told wrongly", flush=True)
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(told.items()))
    print(f"seed {seed}: {kinds}; {time.monotonic() - began_at:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*(int(one) for one in sys.argv[1:3]), *(COUNT, SEED)[len(sys.argv) - 1 :]))
