"""The worker's logger, and its output in programs that have not configured logging."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SLOW_S = 0.8

log = logging.getLogger("dueline.worker")


def show_log() -> None:
    """Log to stderr from INFO, unless the program has configured logging, because a worker must not be silent."""
    ours = logging.getLogger("dueline")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        ours.addHandler(handler)
        ours.setLevel(logging.INFO)


@contextmanager
def warn_if_slow(message: str) -> Generator[None]:
    """Log a warning if the block takes long. It may retry for any length of time, but not silently."""
    handle = asyncio.get_running_loop().call_later(SLOW_S, log.warning, "%s", message)
    try:
        yield
    finally:
        handle.cancel()
