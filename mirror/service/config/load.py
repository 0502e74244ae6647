"""Turns a file into a `Config`, or into a list of everything that is wrong with it."""

import difflib
import os
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mirror.service.config.checks.keys import known_elsewhere
from mirror.service.config.checks.refusal import REFUSED
from mirror.service.config.cluster import ClusterSettings
from mirror.service.config.document import EXAMPLE, Document, read_document
from mirror.service.config.errors import ConfigError, Path
from mirror.service.config.flow import FlowSettings
from mirror.service.config.model import CONFLICT, Config, conflicts
from mirror.service.config.settings import Settings

S = TypeVar("S", bound=Settings)

_MAPPING = ("must be a mapping of keys and values", f"write its keys below it, indented; {EXAMPLE}")
_PAIR = re.compile(r"'[\w.]+ ?[:=].*'", re.DOTALL)
"""A key and its value that YAML reads as one text."""
_SECTIONS: dict[str, type[Settings]] = {"clusters": ClusterSettings, "flows": FlowSettings}
_PLACES: dict[type[Settings], str] = {
    Config: "at the top of the file",
    ClusterSettings: "in a cluster",
    FlowSettings: "in a flow",
}
_BUILT_IN = {
    "missing": ("is required", f"add it; {EXAMPLE}"),
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "mapping_type": _MAPPING,
    "dict_type": _MAPPING,
    "tuple_type": (
        "must be a list",
        "write [one, another], or each item on a line of its own after a dash and a blank",
    ),
    "string_type": ("must be text", "put it in quotes"),
}


def load(path: str | os.PathLike[str], env: Mapping[str, str] = os.environ) -> Config:
    """Reads a configuration file; `env` has the variables for `${env:NAME}`.

    Raises ConfigError with all findings, each as `FILE:LINE: key: what is wrong; remedy`.
    """
    document = read_document(os.fspath(path), env)
    config = _validate(Config, document, document.data)
    if isinstance(config, ValidationError):
        _find_misplaced(document)
        errors = config.errors(include_url=False, include_input=False)
        unknown = [_path(document, error["loc"]) for error in errors if error["type"] == "extra_forbidden"]
        meant = {(*path[:-1], _meant(path)) for path in unknown}
        for error in errors:
            if _path(document, error["loc"]) in document.lines or _path(document, error["loc"]) not in meant:
                _explain(document, error)
        _find_conflicts(document)
    if document.findings or isinstance(config, ValidationError):
        raise ConfigError(document.findings)
    return config


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of the configuration file, for editors and other tools."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema(by_alias=True)}


def _validate(model: type[S], document: Document, data: object) -> S | ValidationError:
    folder = os.path.dirname(os.path.abspath(document.file))
    try:
        return model.model_validate(data, by_alias=True, by_name=False, context=folder)
    except ValidationError as error:
        return error


def _explain(document: Document, error: ErrorDetails) -> None:
    """Adds one of pydantic's errors to the document's findings, with our own problem and remedy."""
    path = _path(document, error["loc"])
    if document.is_broken(path) or error["type"] == CONFLICT:
        return
    if error["type"] == "extra_forbidden":
        document.add(path, *_unknown_key(path))
        return
    at: Path = ()
    if error["type"] == REFUSED:
        problem, remedy = error["ctx"]["problem"], error["ctx"]["remedy"]
        at = (*path[:-1], error["ctx"]["at"]) if error["ctx"]["at"] else ()
    else:
        problem, remedy = _BUILT_IN[error["type"]]
        if (problem, remedy) == _MAPPING and _PAIR.fullmatch(document.shown.get(path, "")):
            remedy = 'write "key: value", with a blank after the colon'
    line = document.line(at) if at and path not in document.lines else None
    document.add(path, problem if at else _with_value(problem, document.shown.get(path)), remedy, line)


def _path(document: Document, loc: Path) -> Path:
    """Returns the path in the file for pydantic's `loc`. (`loc` has the attribute's name instead of the key if a
    default was refused.)"""
    model = _model_of(loc[:-1])
    field = model.model_fields.get(str(loc[-1])) if model and loc and loc not in document.lines else None
    return loc if field is None else (*loc[:-1], str(field.alias))


def _model_of(path: Path) -> type[Settings] | None:
    """Returns the model that defines the keys directly below a path; None if there is none."""
    if not path:
        return Config
    return _SECTIONS.get(str(path[0])) if len(path) == 2 else None


def _with_value(problem: str, shown: str | None) -> str:
    if shown is None:
        return problem
    if problem.startswith("must "):
        return f"{problem}, not {shown}"
    return f"{shown} {problem}" if problem.startswith("is ") and shown not in problem else problem


def _unknown_key(path: Path) -> tuple[str, str]:
    key = str(path[-1])
    known = {place: [str(field.alias) for field in model.model_fields.values()] for model, place in _PLACES.items()}
    here = next(place for model, place in _PLACES.items() if model is _model_of(path[:-1]))
    for place, keys in known.items():
        if key in keys:
            return f"is unknown {here}", f"it belongs {place}"
    elsewhere = known_elsewhere(key)
    if elsewhere:
        return elsewhere
    near = _meant(path)
    if near:
        return "is unknown", f"did you mean {near}?"
    return "is unknown", f"remove it; known {here}: {', '.join(sorted(known[here]))}"


def _meant(path: Path) -> str:
    """Returns the key that an unknown key was probably meant to be; empty if no key is similar."""
    model = _model_of(path[:-1])
    known = [str(field.alias) for field in model.model_fields.values()] if model else []
    near = difflib.get_close_matches(str(path[-1]).replace("_", ".").lower(), known, n=1)
    return near[0] if near else ""


def _find_misplaced(document: Document) -> None:
    """Adds findings for keys of a cluster or flow that stand one level too high, in place of an alias or a flow's
    name."""
    for section, model in _SECTIONS.items():
        found = document.data.get(section) if isinstance(document.data, dict) else None
        keys = {str(field.alias) for field in model.model_fields.values()}
        for key in keys.intersection(found) if isinstance(found, dict) else ():
            document.break_off(
                (section, key),
                f"belongs {_PLACES[model]}, and stands where {section} are named",
                "indent it further, below the one that it is for",
            )


def _find_conflicts(document: Document) -> None:
    """Adds findings for contradictions among those clusters and flows that are valid by themselves."""
    clusters = _each(document, "clusters", ClusterSettings)
    flows = _each(document, "flows", FlowSettings)
    group_id = document.data.get("group.id") if isinstance(document.data, dict) else None
    for conflict in conflicts(clusters, flows, group_id=group_id if isinstance(group_id, str) else ""):
        if document.is_broken(conflict.path):
            continue
        line = document.line(conflict.at) if conflict.at and conflict.path not in document.lines else None
        document.add(conflict.path, conflict.problem, conflict.remedy, line)


def _each(document: Document, section: str, model: type[S]) -> dict[str, S | None]:
    found = document.data.get(section) if isinstance(document.data, dict) else None
    if not isinstance(found, dict):
        return {}
    settings = {name: _validate(model, document, data) for name, data in found.items()}
    return {name: None if isinstance(each, ValidationError) else each for name, each in settings.items()}
