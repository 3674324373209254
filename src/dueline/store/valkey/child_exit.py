"""Waits for a child process to end, without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess


async def exit_of(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child to end, without a thread. Polls only where the kernel offers no notification."""
    if child.poll() is not None:
        return child.returncode
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        while child.poll() is None:  # noqa: ASYNC110 - no descriptor to wait on here
            await asyncio.sleep(0.1)
        return child.returncode
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return child.wait()
