"""How a program that has set up no logging shows the worker's log."""

from __future__ import annotations

import logging

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show_log() -> None:
    """Show Dueline's log on stderr, from INFO, unless the program has set up logging: a worker must not be silent."""
    ours = logging.getLogger("dueline")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        ours.addHandler(handler)
        ours.setLevel(logging.INFO)
