"""The pages on push and the ladder are executed: docs/push.md against a server that may call this machine, and
docs/ladder.md shows what its example prints."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .serve_kit import served
from .test_readme import ROOT, execute

WAYS = [pytest.param(True, id="without curl", marks=[pytest.mark.slow] if shutil.which("curl") else [])]
if shutil.which("curl"):
    WAYS.append(pytest.param(False, id="with curl"))


@pytest.mark.parametrize("stand_in", WAYS)
def test_the_page_on_push_works_as_it_stands(stand_in: bool, tmp_path: Path) -> None:
    with served(tmp_path / "data", DUELINE_PUSH__ALLOW="127.0.0.1") as url:
        execute("docs/push.md", url, tmp_path, stand_in)
    calls = (tmp_path / "calls.txt").read_text().splitlines()[1:]
    assert sorted(calls) == [
        'order-1 1 200 {"order":1}',
        'slow-2 1 503 {"order":2}',
        'slow-2 2 200 {"order":2}',
        'wrong-3 1 410 {"order":3}',
    ]
    assert "Traceback" not in (tmp_path / "receiver.log").read_text()


@pytest.fixture(scope="module")
def ladder_example() -> subprocess.CompletedProcess[str]:
    example = ROOT / "examples" / "payment_notification.py"
    return subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=60, check=True)


def test_the_page_on_the_ladder_shows_what_its_example_prints(
    ladder_example: subprocess.CompletedProcess[str],
) -> None:
    shown = re.search(r"^```text\n(.*?)^```$", (ROOT / "docs" / "ladder.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert (ladder_example.stdout, ladder_example.stderr) == (shown[1], "")


def test_the_ladder_is_climbed_to_the_second(ladder_example: subprocess.CompletedProcess[str]) -> None:
    """Beside the page, so that a wrong page and a wrong program do not agree."""
    ghost = ladder_example.stdout.partition("ghost.example\n")[2]
    waits_s = [120, 600, 600, 3600, 7200, 21_600, 54_000]
    times_s = [sum(waits_s[:rung]) for rung in range(len(waits_s) + 1)]
    seen = [tuple(map(int, text.split(":"))) for text in re.findall(r"\d\d:\d\d:\d\d", ghost)]
    assert [hours * 3600 + minutes * 60 + seconds for hours, minutes, seconds in seen] == times_s
