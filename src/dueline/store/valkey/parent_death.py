"""A child that ends with its parent, whatever ends the parent.

The kernel sends the signal when the *thread* that forked ends, so children are forked from the main thread only, or
from one of which the caller says that it lasts as long as it needs the child. A parent that died between fork and prctl
is found by comparing getppid() afterwards. Where the kernel has no such signal (macOS) the child lives on until the
next server takes the folder over (embedded_lock).
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
    """The `preexec_fn` for a child of this process. Call it in the parent, on the main thread; `any_thread`: this
    thread lasts."""
    if not any_thread and threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children must be forked from the main thread, or they end with the thread")
    parent = os.getpid()
    if not sys.platform.startswith("linux"):
        return _nothing
    # Looked up before the fork: between fork and exec only async-signal-safe work is allowed.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


def _nothing() -> None:
    """There is no parent-death signal on this system."""
