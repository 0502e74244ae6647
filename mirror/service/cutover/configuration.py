"""The configuration of the flow back: the same file, with the flow disabled and one in the opposite direction added."""

import io
import os
import warnings
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError, YAMLWarning

from mirror.service.config import Config, ConfigError, load
from mirror.service.cutover.files import write_whole
from mirror.service.offsets.ends import PartitionEnds
from mirror.service.texts import some

_OF_ITS_OWN = ("flow.id", "group.id", "enabled")
"""Keys of a flow that the flow back does not inherit."""
_STARTS = ("start.from", "start.group")
"""Keys because of which the flow back might leave records out."""


class NotConfigured(Exception):
    """The configuration cannot be made or written; the message says why."""


def reversed_name(flow: str) -> str:
    """Returns the name of the flow back: ``b->a`` for ``a->b``."""
    here, _, there = flow.partition("->")
    return f"{there}->{here}"


def reverse_path(path: Path) -> Path:
    """Returns the default path of the new configuration: beside the given one, so that relative paths in it stay
    valid."""
    return path.with_name(f"{path.stem}.reverse{path.suffix or '.yaml'}")


def reversed_text(text: str, flow: str, flow_id: str) -> str:
    """Returns the configuration with the flow disabled and the flow back added. Comments and references such as
    ``${env:NAME}`` stay. If the flow back is there and enabled, it keeps its ids.

    Args:
        text: the configuration, in YAML.
        flow: name of the flow that is disabled.
        flow_id: id of the flow back.

    Raises:
        NotConfigured: the text is not YAML with that flow, or the flow back is there and enabled with another id.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", YAMLWarning)
            data = yaml.load(text)
        forward = data["flows"][flow]
    except (YAMLError, KeyError, TypeError) as error:
        raise NotConfigured(f"flow {flow} cannot be found in the file: {error}") from error
    name = reversed_name(flow)
    known = data["flows"].get(name)
    back = deepcopy(known or forward)
    runs = known is not None and known.get("enabled", True)
    if runs and (own := known.get("flow.id") or name) != flow_id:
        raise NotConfigured(
            f"flow {name} is enabled with flow.id {own}, and what is copied back would have to begin under flow.id "
            f"{flow_id}: disable or remove {name} in the file if it is not to run any more, then run this again"
        )
    for key in _STARTS if runs else (*_OF_ITS_OWN, *_STARTS):
        back.pop(key, None)
    if flow_id != name:
        back["flow.id"] = flow_id
    forward["enabled"] = False
    data["flows"][name] = back
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def prepared(path: Path, into: Path, flow: str, flow_id: str, rows: Iterable[PartitionEnds]) -> Callable[[], str]:
    """Makes and checks the configuration of the flow back, without writing it yet.

    Args:
        path: path of the given configuration.
        into: path of the new configuration.
        flow: name of the flow that was cut over.
        flow_id: id of the flow back.
        rows: the partitions that were cut over, all of which have to be copied back.

    Returns:
        A function that writes the file, readable only for its owner, and returns its path. It raises NotConfigured as
        well.

    Raises:
        NotConfigured: the configuration cannot be made, would be wrong, cannot be written, would replace a different
            file, or would not copy back what was cut over.
    """
    if into.absolute() == path.absolute():
        raise NotConfigured(f"{into} is the configuration that is read: name another file with --config-out")
    checked = into.with_name(f".{into.name}.checked.{os.getpid()}")  # beside it: relative paths in it stay valid
    try:
        text = reversed_text(path.read_text(encoding="utf-8"), flow, flow_id)
        _check_place(into, text)
        try:
            write_whole(checked, text)
            _check_back(load(checked), flow, rows)
        finally:
            checked.unlink(missing_ok=True)
    except OSError as error:
        raise NotConfigured(f"{into} cannot be written: {error.strerror}") from error
    except ConfigError as error:
        why = str(error).replace(str(checked), str(into))
        raise NotConfigured(
            f"the configuration of the flow back would be wrong, so it is not written: {why}"
        ) from error

    def write() -> str:
        try:
            _check_place(into, text)
            write_whole(into, text)
        except OSError as error:
            raise NotConfigured(f"{into} cannot be written: {error.strerror}") from error
        return str(into)

    return write


def _check_back(config: Config, flow: str, rows: Iterable[PartitionEnds]) -> None:
    """Refuses a flow back that would not copy everything that was cut over into the topics that it came from, with the
    same settings. A flow of that name may have been in the file before, with settings of its own."""
    name = reversed_name(flow)
    forth, back = config.resolved(flow).settings, config.resolved(name).settings
    pairs = sorted({(row.into, row.topic) for row in rows})
    lost = [
        f"{here} into {there}"
        for here, there in pairs
        if not back.selection.selects(here) or back.selection.destination_of(here) != there
    ]
    wrong = [f"does not copy {some(lost)}"] if lost else []
    for key, now, due in (
        ("offsets", back.offsets, "exact"),
        ("isolation.level", back.isolation_level, forth.isolation_level),
        ("identity", back.identity, forth.identity),
    ):
        if now != due:
            wrong.append(f"has {key}: {now}, and not {due}")
    if wrong:
        raise NotConfigured(
            f"flow {name} {'; it '.join(wrong)}, so what was cut over would not come back as it is due: change flow "
            f"{name} in the file, or rename or remove it if it is not to run any more, then run this again"
        )


def _check_place(into: Path, text: str) -> None:
    """Refuses to replace a file with another content than the text: somebody may have edited it."""
    if into.exists() and into.read_bytes() != text.encode():
        raise NotConfigured(
            f"{into} is there, and is not what would be written: it was edited, or is of another cutover. Move it "
            "away, or name another file with --config-out"
        )
