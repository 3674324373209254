"""Processes that end with the one that started them, whatever ends that."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def ends_with(parent: int, signum: int) -> Callable[[], None]:
    """A function for the child to call first: `signum` comes when `parent` ends. Where the kernel has no such signal
    (macOS) only a parent that has ended already is noticed."""
    # Looked up before a fork: between fork and exec only what is safe in a signal handler may be done.
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None

    def in_child() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
