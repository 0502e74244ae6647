"""What an operator has to do after a cutover, with the commands as they are typed here. Pure."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirror.service.commands import Commands
from mirror.service.texts import some


def after_cutover(data: Mapping[str, Any], commands: Commands, bootstrap: str, folder: Path) -> list[str]:
    """Returns the operator's steps after a cutover, as lines of text.

    Args:
        data: the certificate.
        commands: the mirror's commands as they are typed here.
        bootstrap: ``bootstrap.servers`` of the destination.
        folder: folder of the certificate.
    """
    exact = data["offsets"] == "exact"
    groups = [group["group"] for group in data["groups"]]
    names = {row["topic"]: row["into"] for row in data["partitions"]}
    renamed = [f"{topic} is {into}" for topic, into in sorted(names.items()) if topic != into]
    offsets = "at the offsets that they had" if exact else "at the translated offsets (do not set the source's)"
    steps = [
        (
            commands.rendered("`mirror pause --all`")
            + ", or stop the mirror, on every host that runs this flow"
            + (
                ", before anybody else writes to the copies: an exact copy has one writer (foreign_writer)"
                if exact
                else ": nothing more is to come from the source"
            )
        ),
        f"start the consumers with bootstrap.servers={bootstrap}"
        + (f"; groups {some(groups)} go on {offsets}" if groups else "; no group had offsets to carry over"),
        f"start the producers with bootstrap.servers={bootstrap}",
    ]
    if renamed:
        steps.insert(1, f"give clients the topics' names at the destination: {some(renamed)}")
    if exact:
        back = commands.rendered("mirror cutover") + f" --reverse --out {shlex.quote(str(folder.absolute()))}"
        steps.append(f"to be able to go back, once the flow is paused or stopped: `{back}`")
    else:
        steps.append("there is no way back of this kind, since offsets differ (offsets: mapped)")
    if data["not_covered"]:
        steps.append(f"not moved, since the flow does not have them: {some(data['not_covered'])}")
    return ["next:", *(f"  {number}. {step}" for number, step in enumerate(steps, 1))]


def after_reverse(commands: Commands, forward: str) -> list[str]:
    """Returns the operator's steps after the way back was prepared, as lines of text.

    Args:
        commands: the mirror's commands for the flow back and its configuration, as they are typed here.
        forward: name of the flow that was cut over.
    """
    steps = [
        commands.rendered(
            f"leave flow {forward} paused, or disabled as in that file; resumed, it would halt (loop, foreign_writer)"
        ),
        commands.rendered("`mirror plan`"),
        commands.rendered("`mirror start`") + ", in place of the mirror that ran so far",
        commands.rendered("to go back, when it has caught up and the producers have stopped: `mirror cutover`"),
    ]
    return ["next:", *(f"  {number}. {step}" for number, step in enumerate(steps, 1))]
