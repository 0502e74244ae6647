"""Completes the commands in messages as they have to be typed here: program, configuration file, topic, partition.

None of that is known where halts are found and kept in the internal topic: their remedies say ``mirror resume
TOPIC PARTITION``. Another machine, started with another file, may show them. So the supervisor renders them when they
are shown, here and nowhere else.
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
"""A command that has its options already is left as it is: a text may be rendered twice."""
_RESUME = "resume"
_ONCE_DONE = f"; once that is done, run `mirror {_RESUME} TOPIC PARTITION`"
_BY_ITSELF = (
    "; it then goes on by itself at the next look for topics (refresh.topics.interval.ms), or at once with "
    f"`mirror {_RESUME} TOPIC PARTITION`"
)
_CUTOVER = "cutover"
"""Takes its flow without an option."""
_ASKS = frozenset({_RESUME, "pause", "status", _CUTOVER})
"""Commands that ask the running mirror, and have to know its address."""

_ABOUT_ONE = frozenset({_RESUME, "pause", "audit", "sync"})
"""Commands about one flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The mirror's commands as they are typed here.

    Attributes:
        program: the program, as it is typed.
        config: the configuration file that this mirror was started with; empty: not known.
        at: HOST:PORT of the mirror, if the file does not say it; empty if it does.
        flow: the flow that the messages are about, if the file has several that run; empty if it has one.
        destination: the options with which Kafka's own tools reach the flow's destination; empty: not known.
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
        """Returns the commands for the program that this process was started with, and a configuration file."""
        return cls(program=_program(), config=str(config.absolute()))

    def towards(self, destination: ClusterOptions, selection: Selection) -> Self:
        """Returns the commands of a flow that copies these topics into this cluster."""
        reached = tool_options(destination.bootstrap, destination.connection.security)
        return replace(self, destination=reached, selection=selection)

    def rendered(self, text: str, topic: str = "", partition: int | None = None) -> str:
        """Returns the text with its commands as they have to be typed. ``topic``, ``partition``: its subject."""

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
                # A remedy that names neither is about this partition, and one that names the topic is about all of it.
                if partition is not None and (of_partition or not of_topic):
                    words.append(str(partition))
            return " ".join(words)

        if self.selection is not None and topic:
            named = shlex.quote(self.selection.destination_of(topic))
            text = text.replace(DELETE, f"kafka-topics.sh {self.destination} --delete --topic {named}")
        return _COMMAND.sub(typed, text)

    def remedy(self, text: str, reason: str, topic: str, partition: int) -> str:
        """Returns a halt's remedy. It has the command that resumes the partition, and names the line of `mirror plan`
        that tells of such halts beforehand."""
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
    """Returns what was typed to start this process, in a form that works in every directory."""
    started = Path(sys.argv[0])
    if started.name != "mirror":
        return f"{shlex.quote(sys.executable)} -m mirror"
    found = shutil.which("mirror")
    if found is not None and Path(found).absolute() == started.absolute():
        return "mirror"
    return shlex.quote(str(started.absolute()))
