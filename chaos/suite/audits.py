"""Runs ``mirror audit`` for the topics of one or several stages together, since Spark takes long to start."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from chaos.play.mirrors import config_text
from chaos.play.sides import Pair
from mirror.demo.errors import DemoError
from mirror.demo.watch.proof import Audit
from mirror.sandbox.children.process import Processes

__all__ = ["DIFFERENT", "IDENTICAL", "LEFT_OUT", "NOTHING", "NOT_RUN", "Mode", "audit", "mode_of"]

IDENTICAL = "identical"
DIFFERENT = "different"
NOT_RUN = "not run"
"""The audit is still to be made, or was given up."""
LEFT_OUT = "left out"
"""The run is without audits."""
NOTHING = "nothing to audit"
"""The scenario has no topic of which both sides have to be identical."""
_SAID = 12
_numbers = count(1)


class Mode(NamedTuple):
    """The settings of the flow that the audit needs as well. Stages with the same settings are audited together."""

    offsets: str = "exact"
    fill: str = "markers"
    mode: str = "shallow"


USUAL = Mode()


def mode_of(flow: Mapping[str, object]) -> Mode:
    """Returns the mode for a flow. ``flow``: its configuration keys."""
    return Mode(**{name: str(flow[name]) for name in Mode._fields if name in flow})


def audit(
    pair: Pair,
    topics: Sequence[str],
    *,
    folder: Path,
    mode: Mode = USUAL,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[str, str]:
    """Runs the audit.

    Args:
        pair: the clusters.
        topics: names of the topics to compare.
        folder: folder for the audit's files.
        mode: mode of the flow.
        say: called with the progress, in words.

    Returns:
        The audit's verdict and its last lines of output; or ``failed`` and the error.
    """
    config = folder / f"audit-{next(_numbers)}.yaml"
    changed = {name: value for name, value in mode._asdict().items() if value != getattr(USUAL, name)}
    servers = (pair.source.bootstrap_servers, pair.destination.bootstrap_servers)
    config.write_text(config_text(*servers, topics, flow=changed))
    process = Processes()
    try:
        out = config.with_suffix(".out")
        run = Audit(config, out=out, folder=process.folder)
        run.wait(say)
        told = str(json.loads((out / "summary.json").read_text())["verdict"])
        return told, "\n".join(run.said[-_SAID:])
    except DemoError as error:
        return "failed", str(error)
    finally:
        process.close()
