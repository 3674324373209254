"""What a worker logs, and how a program that has set up no logging shows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SLOW_S = 0.8

log = logging.getLogger("dueline.worker")


def show_log() -> None:
    """Show Dueline's log on stderr, from INFO, unless the program has set up logging: a worker must not be silent."""
    ours = logging.getLogger("dueline")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        ours.addHandler(handler)
        ours.setLevel(logging.INFO)


@contextmanager
def said_if_slow(message: str) -> Generator[None]:
    """Warn while what is inside takes its time. It may try for as long as it likes, but not in silence."""
    handle = asyncio.get_running_loop().call_later(SLOW_S, log.warning, "%s", message)
    try:
        yield
    finally:
        handle.cancel()
