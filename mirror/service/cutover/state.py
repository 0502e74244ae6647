"""The steps of a cutover that are done, and for which ends. They are kept in a file, so that the command can be run
again and goes on."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from mirror.service.cutover.files import as_json, write_whole
from mirror.service.cutover.still import Ends, Topics, ends_of, moved, remade, topics_of
from mirror.service.offsets.ends import PartitionEnds

VERSION = 1
FILE = "state.json"
STEPS = ("stopped", "drained", "audited", "groups", "certified")
"""The steps that are noted, in order."""


class StateUnreadable(Exception):
    """The file is not a cutover's state, or that of another cutover; the message says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is cut over: a flow between two clusters."""

    flow: str
    flow_id: str
    source_cluster: str
    destination_cluster: str

    def data(self) -> dict[str, str]:
        """Returns the fields, for JSON."""
        return {
            "flow": self.flow,
            "flow_id": self.flow_id,
            "source_cluster": self.source_cluster,
            "destination_cluster": self.destination_cluster,
        }


@dataclass(slots=True, kw_only=True)
class State:
    """The steps that are done.

    Attributes:
        subject: the flow.
        ends: the source's ends for which the steps are done.
        topics: the ids of the topics for which the steps are done.
        done: step -> its result, with the time when it was done in ``at_ms``.
    """

    subject: Subject
    ends: Ends = field(default_factory=dict)
    topics: Topics = field(default_factory=dict)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    def note(self, step: str, **what: Any) -> None:
        """Notes that a step is done, with its result. Does not write the file."""
        assert step in STEPS, step
        self.done[step] = {"at_ms": round(time.time() * 1000), **what}

    def begin_again(self, rows: Sequence[PartitionEnds] = ()) -> None:
        """Forgets all steps, which were done for other ends or topics. ``rows``: the partitions for which they are done
        from now on."""
        self.ends, self.topics, self.done = ends_of(rows), topics_of(rows), {}

    def changed(self, rows: Sequence[PartitionEnds]) -> list[str]:
        """Returns what has changed since the steps were done, in words: topics, or else ends. Empty: nothing."""
        return remade(self.topics, topics_of(rows)) or moved(self.ends, ends_of(rows))

    def write(self, folder: Path) -> None:
        """Writes the file.

        Raises:
            OSError: the file cannot be written.
        """
        data = {"version": VERSION, **self.subject.data(), "ends": self.ends, "topics": self.topics, "done": self.done}
        write_whole(folder / FILE, as_json(data))

    @classmethod
    def read(cls, folder: Path, subject: Subject) -> Self:
        """Reads the file. Returns an empty state if there is none.

        Raises:
            StateUnreadable: the file cannot be read, is not a cutover's state, or is that of another cutover or
                version.
        """
        path = folder / FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            topics = _topics(data.get("topics", {}))  # earlier versions did not note them
            found = cls(subject=subject, ends=_ends(data["ends"]), topics=topics, done=_done(data["done"]))
            others = {name: data[name] for name in subject.data()}
            version = data["version"]
        except FileNotFoundError:
            return cls(subject=subject)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateUnreadable(
                f"{path} cannot be read as the state of a cutover ({error}): remove it, or name another folder with "
                "--out; all steps are then done again"
            ) from error
        if version != VERSION:
            raise StateUnreadable(
                f"{path} was written by another version of the mirror: name another folder with --out, and all steps "
                "are done again"
            )
        if others != subject.data():
            told = ", ".join(
                f"{name} {others[name]}" for name, value in subject.data().items() if others[name] != value
            )
            raise StateUnreadable(f"{path} is of another cutover ({told}): name another folder with --out")
        return found


def _ends(data: Mapping[str, Mapping[str, Any]]) -> Ends:
    return {str(topic): {str(int(at)): int(end) for at, end in ends.items()} for topic, ends in data.items()}


def _topics(data: Mapping[str, Mapping[str, Any]]) -> Topics:
    found: Topics = {}
    for topic, each in data.items():
        found[str(topic)] = {name: each[name] for name in ("into", "source_id", "destination_id")}
        if not all(value is None or isinstance(value, str) for value in found[topic].values()):
            raise ValueError(f"topic {topic} has something else than texts")
    return found


def _done(data: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    if not set(data) <= set(STEPS):
        raise ValueError(f"unknown steps {sorted(set(data) - set(STEPS))}")
    return {step: dict(what) for step, what in data.items()}
