"""Makes a child process end with its parent, however the parent ends.

The kernel sends the signal when the forking *thread* ends. So children are forked from the main thread, or from a
thread that, as the caller asserts, lives as long as the child is needed. A parent that died between fork and prctl is
detected by comparing getppid() afterwards. Where the kernel has no such signal (macOS), only that is detected.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def ends_with_parent(signum: int = signal.SIGTERM, any_thread: bool = False) -> Callable[[], None]:
    """The `preexec_fn` for a child of this process. Call this in the parent, on the main thread; `any_thread` asserts
    that the current thread lives long enough."""
    if not any_thread and threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children must be forked from the main thread, or they end with the thread")
    return ends_with(os.getpid(), signum)


def ends_with(parent: int, signum: int) -> Callable[[], None]:
    """A function that a child of `parent` calls first. The kernel then sends `signum` when the parent ends."""
    # Looked up before the fork, because only async-signal-safe work is allowed between fork and exec.
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None

    def in_child() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
