"""The configuration in effect: every key with its value, defaults included, in the file's own notation. Secrets and
values from ``${env:…}`` or ``${file:…}`` are hidden."""

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from mirror.service.config.kinds import Size, format_size
from mirror.service.config.model import Config
from mirror.service.config.settings import Settings
from mirror.service.texts import aligned

HIDDEN = "***"
_DEFAULT = "default"
_SECTIONS = ("clusters", "flows")
_USER = re.compile(r"//[^/]*@")
"""Name and password in a URL."""


def in_effect(config: Config, *, given: bool = False) -> dict[str, Any]:
    """Returns the configuration as plain data that YAML and JSON can hold: key -> value.

    Args:
        config: the whole configuration.
        given: True to return only the keys that the file has.
    """
    found: dict[str, Any] = _plain(_mapping(config, config, "", given=given))
    return found


def as_yaml(config: Config, *, given: bool = False) -> str:
    """Returns ``in_effect`` as YAML, in which comments mark the defaults. If nothing is hidden, ``load`` reads the text
    as the same configuration."""
    yaml, text = YAML(), io.StringIO()
    yaml.width = 1 << 16
    yaml.dump(_mapping(config, config, "", given=given), text)
    return text.getvalue()


def as_table(config: Config, *, given: bool = False) -> str:
    """Returns ``in_effect`` as a table with a line for each key: its section, its value, and whether that is the
    default."""
    file = in_effect(config, given=True)
    rows = [("SECTION", "KEY", "VALUE", "")]
    for section, key, value in _leaves(in_effect(config, given=given)):
        its: Any = file
        for part in section:
            its = its.get(part, {})
        shown = value if isinstance(value, str) else json.dumps(value)
        rows.append((" ".join(section[1:]) or "-", key, shown, "" if key in its else _DEFAULT))
    return "\n".join(aligned(rows))


def _leaves(found: Mapping[str, Any], section: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Yields (section, key, value) of every key. The section of a cluster's or flow's key is ("clusters" or "flows",
    its name); that of any other key is empty."""
    for key, value in found.items():
        if (not section and key in _SECTIONS) or section in {(name,) for name in _SECTIONS}:
            yield from _leaves(value, (*section, key))
        else:
            yield section, key, value


def _mapping(config: Config, settings: Settings, flow: str, *, given: bool) -> CommentedMap:
    shown = CommentedMap()
    for name, key, value in _values(config, settings, flow):
        is_given = name in settings.model_fields_set
        if given and not is_given:
            continue
        if isinstance(settings, Config) and name in _SECTIONS:
            each: dict[str, Settings] = getattr(settings, name)
            parts = CommentedMap()
            for part, its in each.items():
                parts[part] = _mapping(config, its, part if name == "flows" else "", given=given)
            shown[key] = parts
            continue
        shown[key] = value
        if not is_given:
            shown.yaml_add_eol_comment(_DEFAULT, key)
    return shown


def _values(config: Config, settings: Settings, flow: str) -> Iterator[tuple[str, str, Any]]:
    """Yields (field name, key, value) of each setting, with secrets hidden. ``flow``: the flow's name if ``settings``
    is a flow, otherwise empty."""
    plain = settings.model_dump(mode="json", by_alias=True, exclude=set(_SECTIONS))
    found = config.resolved(flow) if flow else None
    for name, field in type(settings).model_fields.items():
        key = str(field.alias)
        value = plain.get(key)
        made_of = {"flow_id", "group_id"} if found is not None and name == "group_id" else {name}
        if any(map(settings.is_looked_up, made_of)) or (len(made_of) > 1 and config.is_looked_up("group_id")):
            value = HIDDEN
        elif any(isinstance(kind, Size) for kind in field.metadata) and value is not None and value > 0:
            value = format_size(value)
        elif found is not None and name == "flow_id":
            value = found.id
        elif found is not None and name == "group_id":
            value = config.group_of(found)
        elif key.endswith(".url") and isinstance(value, str):
            value = _USER.sub(f"//{HIDDEN}@", value)
        yield name, key, value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
