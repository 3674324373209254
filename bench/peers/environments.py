"""One environment per peer, created once, in BENCH_PEERS_DIR or else dueline-bench-peers in the user's cache folder.

Versions are pinned in `contestants`; an environment whose pins have changed is recreated.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..broken import Broken
from .contestants import HERE, Contestant

INSTALL_S = 300


def folder() -> Path:
    given = os.environ.get("BENCH_PEERS_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache / "dueline-bench-peers"


def commands(contestant: Contestant) -> Path:
    """The command folder of a contestant's environment, which is created if it does not exist."""
    if contestant.ours:
        return HERE
    place = folder() / contestant.name
    mark = place / "installed"
    wanted = "\n".join((sys.version.split()[0], *contestant.packages))
    if not mark.exists() or mark.read_text() != wanted:
        print(f"{contestant.name}: installing {' '.join(contestant.packages)} in {place}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        _do(sys.executable, "-m", "venv", str(place))
        pip = (str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet")
        _do(*pip, "install", "--prefer-binary", *contestant.packages)
        mark.write_text(wanted)
    return place / "bin"


def node_modules(name: str, packages: Sequence[str]) -> Path:
    """A folder with these packages from npm, which is created if it does not exist."""
    place = folder() / name
    mark, wanted = place / "installed", "\n".join(packages)
    if not mark.exists() or mark.read_text() != wanted:
        print(f"{name}: installing {' '.join(packages)} in {place}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "package.json").write_text("{}")
        _do("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *packages, cwd=place)
        mark.write_text(wanted)
    return place


def _do(*words: str, cwd: Path | None = None) -> None:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        raise Broken(f"{' '.join(words)} said: {(done.stdout + done.stderr)[-1000:]}")
