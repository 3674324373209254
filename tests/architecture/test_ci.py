"""`.ci/run` with commands that do nothing in place of make and the programs that it would install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAGES = ["packages", "setup", "lint", "types", "test-ui", "test", "test-browser", "test-slow", "test-faults"]
TARGETS = ["dev", "lint", "types", "test-ui", "test", "test-browser", "test-slow", "test-faults"]


ALL = ("cc", "chromium", "curl", "node", "php", "promtool", "redis-check-rdb")


def ci(folder: Path, make: str, *, installed: tuple[str, ...] = ALL) -> tuple[int, str, str]:
    """Run it where `make TARGET` runs this line of shell: exit code, the report, the calls of make and apt-get."""
    fakes = {"make": make, "apt-get": "", "id": "echo 0", **dict.fromkeys(installed, "exit 9")}
    (folder / "dirname").symlink_to(shutil.which("dirname") or "")
    for name, line in fakes.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\n{line}\n')
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", str(ROOT / ".ci" / "run")],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": str(folder)},
    )
    return done.returncode, done.stdout.rpartition("\n\n")[2], (folder / "calls").read_text()


def test_ci_prints_the_minutes_of_every_stage(tmp_path: Path) -> None:
    code, report, calls = ci(tmp_path, "exit 0")
    assert re.findall(r"^(\S+) +\d+\.\d min$", report, re.MULTILINE) == [*STAGES, "total"]
    assert (code, re.findall(r"^make (\S+)$", calls, re.MULTILINE)) == (0, TARGETS)


@pytest.mark.parametrize("failing", TARGETS)
def test_ci_ends_with_the_exit_code_of_the_stage_that_failed(tmp_path: Path, failing: str) -> None:
    code, report, calls = ci(tmp_path, f'[ "$1" != {failing} ] || exit 7')
    stage = "setup" if failing == "dev" else failing
    assert re.findall(r"^(\S+) .* failed$", report, re.MULTILINE) == [stage]
    assert (code, report.splitlines()[-1].split()[0]) == (7, "total")
    assert re.findall(r"^make (\S+)$", calls, re.MULTILINE)[-1] == failing


def test_ci_installs_the_programs_that_are_missing(tmp_path: Path) -> None:
    code, _, calls = ci(tmp_path, "exit 0", installed=("cc", "chromium", "curl"))
    wanted = "nodejs php-cli redis-tools"
    assert (code, re.findall(rf"^apt-get install .* ({wanted})$", calls, re.MULTILINE)) == (0, [wanted])
