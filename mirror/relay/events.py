"""The interface of the log that the relay's events go to."""

from typing import Protocol


class EventLog(Protocol):
    """The part of a logger that the relay needs. structlog's loggers have it."""

    def info(self, event: str, **fields: object) -> object:
        """Logs an event that needs no attention."""

    def warning(self, event: str, **fields: object) -> object:
        """Logs an event that somebody should look at."""
