"""Log lines with fields, through the standard library's `logging`.

    log = EventLog("dueline.store")
    log.warning("the store ended", exit=1, again_in_s=0.5)

The formatter decides how the line looks: `telemetry.logs` writes the fields separately. A program that runs the queue
inside itself has formatters of its own, which show "the store ended exit=1 again_in_s=0.5".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping


class Event:
    """What happened, and its fields. It is the message of a log record."""

    __slots__ = ("fields", "text")

    def __init__(self, text: str, fields: Mapping[str, object]) -> None:
        self.text = text
        self.fields = fields

    def __str__(self) -> str:
        return " ".join((self.text, *(f"{name}={value!r}" for name, value in self.fields.items())))


class EventLog:
    """One part of the program in the log."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, text: str, **fields: object) -> None:
        self._logger.info(Event(text, fields))

    def warning(self, text: str, **fields: object) -> None:
        self._logger.warning(Event(text, fields))

    def error(self, text: str, **fields: object) -> None:
        self._logger.error(Event(text, fields))

    def exception(self, text: str, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._logger.exception(Event(text, fields))
