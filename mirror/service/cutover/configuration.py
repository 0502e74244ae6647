"""The configuration of the flow that leads back: the same file, with the flow turned round."""

import io
import os
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError, YAMLWarning

from mirror.service.config import ConfigError, load
from mirror.service.cutover.files import write_whole

_OF_ITS_OWN = ("flow.id", "group.id", "enabled", "start.from", "start.group")
"""Keys of a flow that the flow back does not inherit."""


class NotConfigured(Exception):
    """The configuration cannot be made; the message says why."""


def reversed_name(flow: str) -> str:
    """Returns the name of the flow that leads back."""
    here, _, there = flow.partition("->")
    return f"{there}->{here}"


def reverse_path(path: Path) -> Path:
    """Returns where the configuration goes by default: beside the other one, so that relative paths in it hold."""
    return path.with_name(f"{path.stem}.reverse{path.suffix or '.yaml'}")


def reversed_text(text: str, flow: str, flow_id: str) -> str:
    """Returns the configuration with the flow disabled and the one that leads back in its place. Comments and
    references such as ``${env:NAME}`` stay.

    Raises:
        NotConfigured: it is not YAML with that flow.
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
    back = deepcopy(data["flows"].get(name) or forward)
    for key in _OF_ITS_OWN:
        back.pop(key, None)
    if flow_id != name:
        back["flow.id"] = flow_id
    forward["enabled"] = False
    data["flows"][name] = back
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()


def prepared(path: Path, into: Path, flow: str, flow_id: str) -> Callable[[], str]:
    """Makes and checks the configuration of the flow back, and leaves no file.

    Returns:
        What writes it, readable for its owner only, and returns where it is; raises NotConfigured, too.

    Raises:
        NotConfigured: it cannot be made, would be wrong, cannot be written, or would replace another one.
    """
    if into.absolute() == path.absolute():
        raise NotConfigured(f"{into} is the configuration that is read: name another file with --config-out")
    checked = into.with_name(f".{into.name}.checked.{os.getpid()}")  # beside it: relative paths in it hold
    try:
        text = reversed_text(path.read_text(encoding="utf-8"), flow, flow_id)
        _check_place(into, text)
        try:
            write_whole(checked, text)
            load(checked)
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


def _check_place(into: Path, text: str) -> None:
    """Refuses to replace a file that somebody has edited."""
    if into.exists() and into.read_bytes() != text.encode():
        raise NotConfigured(
            f"{into} is there, and is not what would be written: it was edited, or is of another cutover. Move it "
            "away, or name another file with --config-out"
        )
