"""What memory a process can use: the machine's, or the least limit of its cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dueline.store.valkey.embedded_memory import memory_bytes

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


def system(root: Path, groups: str, limits: dict[str, str]) -> Path:
    files = {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": text for name, text in limits.items()}}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "bytes"),
    [
        ("0::/\n", {}, MACHINE),
        ("0::/app\n", {"app/memory.max": "max\n"}, MACHINE),
        ("0::/app\n", {"app/memory.max": f"{512 * MIB}\n"}, 512 * MIB),
        ("0::/pod/app\n", {"pod/app/memory.max": "max\n", "pod/memory.max": f"{256 * MIB}\n"}, 256 * MIB),
        ("0::/not/mounted/here\n", {"memory.max": f"{128 * MIB}\n"}, 128 * MIB),
        ("5:cpu:/\n4:memory:/app\n0::/\n", {"memory/app/memory.limit_in_bytes": f"{64 * MIB}\n"}, 64 * MIB),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE),
        ("not a line of a cgroup file", {}, MACHINE),
    ],
    ids=["no limit", "max", "own limit", "a parent's", "the mount's root", "version 1", "version 1, none", "nonsense"],
)
def test_the_least_limit_counts(tmp_path: Path, groups: str, limits: dict[str, str], bytes: int) -> None:
    assert memory_bytes(system(tmp_path, groups, limits)) == bytes


def test_without_cgroups_the_machine_counts(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path) == MACHINE
