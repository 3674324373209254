"""Child processes that end with their parent, however the parent ends."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def ends_with(parent: int, signum: int) -> Callable[[], None]:
    """A function that the child calls first. It makes the kernel send `signum` when `parent` ends. Where the kernel
    cannot do that (macOS), only a parent that has already ended is noticed."""
    # Looked up before the fork, because between fork and exec only async-signal-safe calls are allowed.
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None

    def in_child() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
