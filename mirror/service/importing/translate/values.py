"""Converts values of single settings."""

from collections.abc import Mapping

from mirror.service.importing.settings.rule import How
from mirror.service.importing.translate import references


class NotConverted(Exception):
    """The value cannot be converted. The message says what to do, and does not repeat the value."""


def converted(how: How, value: str, providers: Mapping[str, str], variable: str) -> str | int | bool:
    """Returns a value in the mirror's notation.

    Args:
        how: the kind of conversion.
        value: the value in the input.
        providers: name of a ConfigProvider -> its Java class.
        variable: name of the environment variable for a reference without an equivalent.

    Raises:
        NotConverted: the value is not of this kind.
    """
    text = value.strip()
    if references.refers(text):
        if how is How.SECONDS:
            raise NotConverted(
                "it comes from a ConfigProvider, in seconds: here it is milliseconds, so write the number itself"
            )
        return references.translated(text, providers, variable).text
    if how in (How.NUMBER, How.SECONDS):
        try:
            return int(text) * (1000 if how is How.SECONDS else 1)
        except ValueError:
            raise NotConverted("it is no whole number: write one") from None
    if how is How.SWITCH:
        if text.lower() not in ("true", "false"):
            raise NotConverted("it is neither true nor false: write one of them")
        return text.lower() == "true"
    return references.translated(text, providers, variable).text
