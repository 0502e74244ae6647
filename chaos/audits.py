"""``mirror audit`` over the topics of one or several stages; Spark starts once for all of them."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from chaos.mirrors import config_text
from chaos.sides import Pair
from mirror.demo.errors import DemoError
from mirror.demo.proof import Audit
from mirror.sandbox.process import Processes

__all__ = ["DIFFERENT", "IDENTICAL", "audit"]

IDENTICAL = "identical"
DIFFERENT = "different"
_SAID = 12
_numbers = count(1)


def audit(
    pair: Pair,
    topics: Sequence[str],
    *,
    folder: Path,
    offsets: str = "exact",
    say: Callable[[str], None] = lambda _: None,
) -> tuple[str, str]:
    """Run the audit.

    Args:
        pair: the clusters.
        topics: to compare.
        folder: gets the audit's files.
        offsets: the flow's mode.
        say: told what goes on.

    Returns:
        ``identical``, ``different`` or ``failed``, and what it said last.
    """
    config = folder / f"audit-{next(_numbers)}.yaml"
    # Of what a cleaner took at the source since, the stage's own comparison knows the bytes that were written.
    flow = {"audit.accept": ["unverifiable"], **({} if offsets == "exact" else {"offsets": offsets})}
    config.write_text(config_text(pair.source.bootstrap_servers, pair.destination.bootstrap_servers, topics, flow=flow))
    process = Processes()
    try:
        run = Audit(config, out=config.with_suffix(".out"), folder=process.folder)
        identical = run.wait(say)
        return IDENTICAL if identical else DIFFERENT, "\n".join(run.said[-_SAID:])
    except DemoError as error:
        return "failed", str(error)
    finally:
        process.close()
