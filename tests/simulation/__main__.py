"""``python -m tests.simulation SEED``: one run with its trace. ``FIRST LAST``: these runs, and what became of them."""

import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.simulation.run import Outcome, Violation, play


def main(play: Callable[[int], Outcome]) -> int:
    """See the module's text. ``play``: one run of a seed.

    Returns:
        The exit code: 1 if any run was violated or broke.
    """
    first = int(sys.argv[1])
    last = int(sys.argv[2]) if len(sys.argv) > 2 else first
    ends: Counter[str] = Counter()
    began = time.process_time()
    for seed in range(first, last + 1):
        try:
            ends[play(seed).halted or "complete"] += 1
        except Violation as error:
            ends["VIOLATED"] += 1
            print(error if first == last else str(error).splitlines()[0], flush=True)
        except Exception as error:
            ends["BROKEN"] += 1
            if first == last:
                raise
            print(f"seed {seed}: {error!r}", flush=True)
    print(f"{last - first + 1} runs in {time.process_time() - began:.1f} s of CPU: {dict(ends)}")
    return 1 if ends["VIOLATED"] or ends["BROKEN"] else 0


if __name__ == "__main__":
    sys.exit(main(play))
