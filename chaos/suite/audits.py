"""``mirror audit`` over the topics of one or several stages; Spark starts once for all of them."""

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
"""It is due, or was given up."""
LEFT_OUT = "left out"
"""The run is one without audits."""
NOTHING = "nothing to audit"
"""No topic was left that an audit could find to be identical."""
_SAID = 12
_numbers = count(1)


class Mode(NamedTuple):
    """The settings of the copying flow that an audit needs: stages of one mode are audited together."""

    offsets: str = "exact"
    fill: str = "markers"
    mode: str = "shallow"


USUAL = Mode()


def mode_of(flow: Mapping[str, object]) -> Mode:
    """Returns the mode of a flow's settings."""
    return Mode(**{name: str(flow[name]) for name in Mode._fields if name in flow})


def audit(
    pair: Pair,
    topics: Sequence[str],
    *,
    folder: Path,
    mode: Mode = USUAL,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[str, str]:
    """Run the audit.

    Args:
        pair: the clusters.
        topics: to compare.
        folder: for the audit's files.
        mode: of the flow.
        say: called with what goes on.

    Returns:
        The audit's verdict, or ``failed``, and its last lines of output.
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
