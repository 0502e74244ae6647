"""For tuning: load one workload once, then measure mirror on it any number of times, in seconds.

    python -m bench.lab hold 16KB-lz4-64p     two clusters with that workload, until Ctrl-C; run it in another terminal,
                                              or with & at its end
    python -m bench.lab try [RUNS]            floor and mirror on the held workload, RUNS times in turn (1)

The environment is read as in ``bench.plan``: BENCH_SCALE for hold, BENCH_FLOW for try.
"""

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

from bench import plan
from bench.copiers import floor
from bench.copiers.copying import measure
from bench.copiers.programs import programs
from bench.copiers.shallow import Mirror
from bench.data import loading, room
from bench.data.clusters import Side, pair
from bench.data.stored import Stored
from bench.errors import BenchError, exit_code_of
from bench.measure import Measured, median

__all__ = ["held", "hold", "main", "try_out"]

STATE = plan.ROOT / "build" / "bench" / "lab.json"


def hold(name: str) -> None:
    """Loads a workload, and keeps it until this process is told to end. ``name``: name of the workload.

    Raises:
        BenchError: there is no such workload.
    """
    scale = os.environ.get("BENCH_SCALE", "")
    asked = plan.from_environment({
        "BENCH_ONLY": f"^{name}$", "BENCH_SYSTEMS": "floor,mirror", "BENCH_SCALE": scale
    })  # fmt: skip
    room.find(os.environ)
    with pair() as (source, destination), programs() as started:
        for workload in asked.workloads[:1]:
            has = loading.fill(workload, source, started)
            state = {
                "pid": os.getpid(), "workload": dataclasses.asdict(workload), "held": dataclasses.asdict(has),
                "sides": [[side.bootstrap_servers, str(side.data_dir)] for side in (source, destination)],
            }  # fmt: skip
            STATE.parent.mkdir(parents=True, exist_ok=True)
            STATE.write_text(json.dumps(state))
            print(
                f"holding {workload.name}: {has.bytes / 1e9:.2f} GB, mean batch {has.mean_batch_bytes:.0f}", flush=True
            )
            try:
                signal.pause()
            finally:
                STATE.unlink(missing_ok=True)


def held() -> tuple[plan.Workload, Stored, Side, Side]:
    """Returns the workload that another process holds, its contents at the source, the source, and the destination.

    Raises:
        BenchError: no process holds a workload.
    """
    if not STATE.exists():
        raise BenchError("no workload is held", "run `python -m bench.lab hold 16KB-lz4-64p &` first")
    state = json.loads(STATE.read_text())
    if not Path(f"/proc/{state['pid']}").exists():
        STATE.unlink(missing_ok=True)
        raise BenchError("the process that held a workload is gone", "run `python -m bench.lab hold ...` again")
    source, destination = (
        Side(name, servers, Path(folder))
        for name, (servers, folder) in zip(("source", "destination"), state["sides"], strict=True)
    )
    return plan.Workload(**state["workload"]), Stored(**state["held"]), source, destination


def try_out(runs: int) -> None:
    """Measures the floor and mirror alternately on the held workload. ``runs``: number of measurements of each.

    Raises:
        BenchError: no process holds a workload, or a measurement has failed.
    """
    workload, has, source, destination = held()
    copier = Mirror(plan.from_environment(os.environ).flow)
    floors: list[Measured] = []
    found: list[Measured] = []
    with programs() as started:
        for _ in range(runs):
            floors.append(floor.measure(started, source.segments(workload.topic, workload.partitions)))
            found.append(measure(copier, workload, has, source=source, destination=destination, programs=started))
            _say("", floors[-1], found[-1])
    if runs > 1:
        _say("median: ", median(floors), median(found))


def main(arguments: list[str]) -> int:
    """Runs the command, and returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    match arguments:
        case ["hold", name]:
            return exit_code_of(lambda: hold(name))
        case ["try"]:
            return exit_code_of(lambda: try_out(1))
        case ["try", runs] if runs.isdigit() and int(runs) > 0:
            return exit_code_of(lambda: try_out(int(runs)))
    print(__doc__, file=sys.stderr)
    return 1


def _say(head: str, base: Measured, run: Measured) -> None:
    print(
        f"{head}floor {base.cpu_s_per_gb:.3f}, mirror {run.cpu_s_per_gb:.3f} CPU-s/GB "
        f"({run.cpu_s_per_gb / base.cpu_s_per_gb:.2f} x), {run.mb_per_s:.0f} MB/s, "
        f"peak {run.peak_rss_bytes / 1e6:.0f} MB, start {run.start_cpu_s:.2f} CPU-s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
