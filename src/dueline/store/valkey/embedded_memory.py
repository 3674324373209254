"""The default memory limit of the embedded store: a share of the memory of this machine or container.

Beyond its data the store needs memory for fragmentation (about 15 %). While it rewrites its file, it also needs a copy
of every page that changes, at worst of all pages. The server's own processes need some too. So with 40 % for data the
worst case is about 95 % in total, and the kernel has no reason to kill a process.
"""

from __future__ import annotations

import os
from pathlib import Path

SHARE = 0.4


def default_ceiling_bytes() -> int:
    """The `maxmemory` of an embedded store, unless it is set."""
    return int(memory_bytes() * SHARE)


def memory_bytes(root: Path = Path("/")) -> int:
    """The memory that the processes of this container can use. `root`: where /proc and /sys are."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> list[int]:
    """The limits of this process's cgroup and of all above it, version 1 and 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    limits: list[int] = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        own = base / path.strip("/")
        # Inside a container this may be the host's path, which does not exist here. Then our group is the mount's root.
        for folder in (own, *own.parents):
            limits += _limit(folder / name)
            if folder == base:
                break
    return limits


def _limit(file: Path) -> list[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdigit() else []  # "max": none
