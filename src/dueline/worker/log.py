"""The worker's logger, and its output in programs that have not configured logging."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager

from ..client.tracing import trace_id
from ..redaction import redacted

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SLOW_S = 0.8

log = logging.getLogger("dueline.worker")


def show_log() -> None:
    """Log to stderr from INFO, unless the program has configured logging, because a worker must not be silent."""
    ours = logging.getLogger("dueline")
    if not ours.hasHandlers():
        ours.addHandler(shown_log())
        ours.setLevel(logging.INFO)


def shown_log(format: str = LOG_FORMAT) -> logging.Handler:
    """A handler that writes lines for people to stderr, without secrets and with the id of their trace."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(format))
    return handler


class _Lines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        trace = trace_id()
        return super().formatMessage(record) + ("" if trace is None else f" trace_id={trace}")

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


@contextmanager
def warn_if_slow(message: str) -> Generator[None]:
    """Log a warning if the block takes long. It may retry for any length of time, but not silently."""
    handle = asyncio.get_running_loop().call_later(SLOW_S, log.warning, "%s", message)
    try:
        yield
    finally:
        handle.cancel()
