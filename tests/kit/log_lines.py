"""The lines that our parts write to the log, as values; and the log of a test process as it was."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dueline.event_log import Event

Line = dict[str, Any]


@contextmanager
def logged_events() -> Iterator[list[Line]]:
    """A list of the events that are logged in the block, each with its `event`, its `level` and its fields."""
    lines: list[Line] = []
    handler = _Collector(lines)
    log = logging.getLogger("dueline")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def logging_restored() -> Iterator[None]:
    """The block may set up the log of this process, as a server or a worker does when it starts."""
    root, ours = logging.getLogger(), logging.getLogger("dueline")
    handlers, level, hook = list(root.handlers), root.level, sys.excepthook
    our_handlers, our_level = list(ours.handlers), ours.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        ours.handlers[:] = our_handlers
        ours.setLevel(our_level)
        sys.excepthook = hook
        logging.captureWarnings(False)


class _Collector(logging.Handler):
    def __init__(self, lines: list[Line]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, Event):
            self._lines.append({"event": record.msg.text, "level": record.levelname.lower(), **record.msg.fields})
