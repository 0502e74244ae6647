"""Where the relay's events go."""

from typing import Protocol


class EventLog(Protocol):
    """The part of a logger that the relay needs; structlog's fits."""

    def info(self, event: str, **fields: object) -> object:
        """Logs that something happened."""

    def warning(self, event: str, **fields: object) -> object:
        """Logs that something needs a look."""
