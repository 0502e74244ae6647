"""Completes the commands in messages as they have to be typed here: program, configuration file, topic, partition.

These are not known where halts are detected and written to the internal topic: their remedies say ``mirror resume
TOPIC PARTITION``, and another machine, started with another file, may show them. So the supervisor completes the
commands when a message is shown. This is the only place that does it.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from mirror.foretold import beforehand
from mirror.net.options import ClusterOptions, tool_options
from mirror.reasons import DELETE, Heals, heals
from mirror.service.selection import Selection

_COMMAND = re.compile(
    r"\bmirror (pause|resume|status|audit|plan|run|start|sync|cutover)\b(?! -c )( TOPIC\b)?( PARTITION\b)?( --all\b)?"
)
"""Matches a command without its options. A command that has them already does not match: a text may be rendered
twice."""
_RESUME = "resume"
_ONCE_DONE = f"; once that is done, run `mirror {_RESUME} TOPIC PARTITION`"
_BY_ITSELF = (
    "; it then goes on by itself at the next look for topics (refresh.topics.interval.ms), or at once with "
    f"`mirror {_RESUME} TOPIC PARTITION`"
)
_CUTOVER = "cutover"
"""The command that takes its flow as an argument, not as an option."""
_ASKS = frozenset({_RESUME, "pause", "status", _CUTOVER})
"""Commands that connect to the running mirror, and need its address."""

_ABOUT_ONE = frozenset({_RESUME, "pause", "audit", "sync"})
"""Commands about one flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The mirror's commands as they are typed here.

    Attributes:
        program: the program, as it is typed.
        config: the configuration file that this mirror was started with; empty: not known.
        at: HOST:PORT of the mirror, if it is not in the file; otherwise empty.
        flow: the flow that the messages are about, if several flows of the file run; empty if there is only one.
        destination: the options with which Kafka's command-line tools reach the flow's destination; empty: not known.
        selection: the flow's topics, and their names at the destination; None if that is not known.
    """

    program: str = "mirror"
    config: str = ""
    at: str = ""
    flow: str = ""
    destination: str = ""
    selection: Selection | None = None

    @classmethod
    def of(cls, config: Path) -> Self:
        """Returns the commands for the program with which this process was started, and a configuration file."""
        return cls(program=_program(), config=str(config.absolute()))

    def towards(self, destination: ClusterOptions, selection: Selection) -> Self:
        """Returns the commands of a flow that copies these topics into this cluster."""
        reached = tool_options(destination.bootstrap, destination.connection.security)
        return replace(self, destination=reached, selection=selection)

    def rendered(self, text: str, topic: str = "", partition: int | None = None) -> str:
        """Returns the text with its commands as they have to be typed. ``topic``, ``partition``: what the text is
        about, if anything."""

        def typed(found: re.Match[str]) -> str:
            command, of_topic, of_partition, every = found.groups()
            words = [self.program, command]
            words += ["-c", shlex.quote(self.config)] if self.config else []
            words += ["--at", self.at] if self.at and command in _ASKS else []
            words += ["--flow", shlex.quote(self.flow)] if self.flow and command in _ABOUT_ONE else []
            words += [shlex.quote(self.flow)] if self.flow and command == _CUTOVER else []
            if every:
                words.append("--all")
            elif command == _RESUME and topic:
                words.append(shlex.quote(topic))
                # A command without TOPIC and PARTITION is about this partition; one with TOPIC only, about the topic.
                if partition is not None and (of_partition or not of_topic):
                    words.append(str(partition))
            return " ".join(words)

        if self.selection is not None and topic:
            named = shlex.quote(self.selection.destination_of(topic))
            text = text.replace(DELETE, f"kafka-topics.sh {self.destination} --delete --topic {named}")
        return _COMMAND.sub(typed, text)

    def remedy(self, text: str, reason: str, topic: str, partition: int) -> str:
        """Returns the remedy of a halt, with the command that resumes the partition, and the check of `mirror plan`
        that predicts such halts."""
        if text and f"mirror {_RESUME}" not in text:
            by_itself = heals(reason) in (Heals.TOPICS, Heals.TERMS, Heals.RIGHTS)
            text += _BY_ITSELF if by_itself else _ONCE_DONE
        if text and (line := beforehand(reason)):
            text += f". {line[0].upper()}{line[1:]}"
        return self.rendered(text, topic, partition)

    def line(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of a log line, with the commands in ``detail`` and ``remedy`` rendered."""
        topic, partition = fields.get("topic", ""), fields.get("partition")
        found = dict(fields)
        if "mirror " in found.get("detail", ""):
            found["detail"] = self.rendered(found["detail"], topic, partition)
        if "remedy" in found and "reason" in found and partition is not None:
            found["remedy"] = self.remedy(found["remedy"], found["reason"], topic, partition)
        elif "remedy" in found:
            found["remedy"] = self.rendered(found["remedy"], topic, partition)
        return found


def _program() -> str:
    """Returns the program as it was typed to start this process, in a form that works in every directory."""
    started = Path(sys.argv[0])
    if started.name != "mirror":
        return f"{shlex.quote(sys.executable)} -m mirror"
    found = shutil.which("mirror")
    if found is not None and Path(found).absolute() == started.absolute():
        return "mirror"
    return shlex.quote(str(started.absolute()))
