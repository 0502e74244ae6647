"""The base of all settings."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, PrivateAttr, model_validator


class Resolved(str):
    """Text that came from `${env:NAME}` or `${file:PATH}`. It may be a secret, so it is never shown.

    Attributes:
        file: the file's absolute path, if the text is the whole content of one; otherwise empty.
    """

    __slots__ = ("file",)

    file: str

    def __new__(cls, text: str, file: str = "") -> Self:
        made = super().__new__(cls, text)
        made.file = file
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (str(self), self.file)


class Settings(BaseModel):
    """Base of all settings. They are frozen, have YAML keys with dots, refuse unknown keys, and `repr` does not show
    values that came from `${...}`."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: name.replace("_", "."),
        validate_by_name=True,  # for Python; `load` takes the YAML keys alone
        validate_by_alias=True,
        use_attribute_docstrings=True,
        field_title_generator=lambda name, _: name.replace("_", "."),
    )

    _looked_up: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_looked_up(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        settings = handler(data)
        if isinstance(data, Mapping):
            settings._looked_up = frozenset(
                name for name, field in cls.model_fields.items() if _holds_resolved(data.get(field.alias))
            )
        return settings

    def is_looked_up(self, name: str) -> bool:
        """Returns True if the setting of this name, or a part of it, came from `${env:NAME}` or `${file:PATH}`."""
        return name in self._looked_up

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, "***" if name in self._looked_up else value


def _holds_resolved(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_resolved, [*value, *value.values()]))
    return isinstance(value, Resolved) or (isinstance(value, list) and any(map(_holds_resolved, value)))
