"""What the documents show is executed: every `sh` and `python` block of a page, in order, as a reader types them.

A `json` block after a `sh` block is what it answers: the names of all fields must be the same, at every depth.

On a machine without curl, pages that use it are executed with the stand-in of `curl.py`. Where curl is installed, that
is a slow test.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dueline.testing.process import DUELINE

from .serve_kit import environment, served

ROOT = Path(__file__).parents[2]
CURL = Path(__file__).with_name("curl.py")
ADDRESS = "http://127.0.0.1:9277"
PAGES = ("README.md", "docs/quick-start.md", "docs/api.md", "docs/merge.md", "docs/python.md", "docs/schedules.md")
READ_IN_TURN = ("README.md", "docs/quick-start.md")  # on one server
TRANSLATED = {"README.md": "README.zh-CN.md", "docs/quick-start.md": "docs/quick-start.zh-CN.md"}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "=== end of block ==="


def ways() -> list[Any]:
    """The pages, each with the commands of this machine and, where it asks by curl, with the stand-in."""
    found = [pytest.param(name, False, id=name) for name in PAGES if name not in READ_IN_TURN]
    found += [
        pytest.param(name, True, id=f"{name} without curl", marks=[pytest.mark.slow] if shutil.which("curl") else [])
        for name in PAGES
        if uses_curl(name)
    ]
    return [way for way in found if shutil.which("curl") or way.values[1] or not uses_curl(way.values[0])]


def uses_curl(name: str) -> bool:
    return any("curl " in text for kind, text in BLOCK.findall((ROOT / name).read_text()) if kind == "sh")


def put_command(folder: Path, name: str, *words: str) -> None:
    command = folder / name
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o755)


@pytest.mark.parametrize("name", PAGES)
def test_what_is_executed_calls_only_this_machine(name: str) -> None:
    shown = "".join(text for kind, text in BLOCK.findall((ROOT / name).read_text()) if kind in ("sh", "python"))
    assert set(re.findall(r"https?://([\w.-]+)", shown)) <= {"127.0.0.1", "localhost"}


def type_all(blocks: list[str], url: str, folder: Path, stand_in: bool) -> list[str]:
    """Run blocks one after the other in one shell; what each printed. A failing command, or an HTTP error, ends it."""
    commands = folder / "bin"
    commands.mkdir()
    put_command(commands, "dueline", *DUELINE)
    if stand_in:
        put_command(commands, "curl", sys.executable, str(CURL))
    (folder / ".venv").symlink_to(folder)  # so that .venv/bin/dueline is the command above
    script = "set -eu\ncurl() { command curl --noproxy '*' \"$@\"; }\n"
    script += "".join(f"{block.replace(ADDRESS, url)}\necho\necho '{MARK}'\n" for block in blocks)
    path = f"{commands}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=folder,
        env=environment(url, PATH=path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split(MARK)[:-1]


def shape(value: Any) -> Any:
    """The names in a JSON value; of a list, the shape of its first element."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in sorted(value.items())}
    return [shape(part) for part in value[:1]] if isinstance(value, list) else None


@pytest.mark.parametrize(("name", "stand_in"), ways())
def test_everything_that_a_page_shows_works_as_it_stands(name: str, stand_in: bool, tmp_path: Path) -> None:
    with served(tmp_path / "data") as url:
        execute(name, url, tmp_path, stand_in)


def test_a_reader_goes_from_the_readme_to_the_quick_start_on_the_same_server(tmp_path: Path) -> None:
    with served(tmp_path / "data") as url:
        for name in READ_IN_TURN:
            folder = tmp_path / Path(name).stem
            folder.mkdir()
            outputs = execute(name, url, folder, stand_in=shutil.which("curl") is None)
    assert "delivered to bob" in outputs[-1]


def execute(name: str, url: str, folder: Path, stand_in: bool) -> list[str]:
    """Type a page's commands, run its programs, and compare its answers; what each block of commands printed."""
    blocks = BLOCK.findall((ROOT / name).read_text())
    typed = [text for kind, text in blocks if kind == "sh"]
    outputs = type_all(typed, url, folder, stand_in)
    assert len(outputs) == len(typed) > 0
    if name.startswith("README"):
        assert '{"results":[{"id":"welcome-1","result":"acked"}]}' in outputs[0].replace(" ", "")
    for (kind, text), (following, shown) in itertools.pairwise(blocks):
        if (kind, following) == ("sh", "json"):
            answer = outputs[typed.index(text)].strip().splitlines()[-1]
            expected, found = msgspec.json.decode(shown), msgspec.json.decode(answer)
            for value in (expected, found):
                value.pop("limits", None)  # too many to show on a page
            assert shape(found) == shape(expected), text
    for kind, text in blocks:
        if kind == "python":
            program = text.replace(ADDRESS, url)
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
    return outputs


@pytest.mark.parametrize("given", [["-k"], ["--data-raw", "x"], ["-o", "file"], []])
def test_the_stand_in_for_curl_refuses_what_it_does_not_know(given: list[str]) -> None:
    url = ["http://127.0.0.1:1/"] if given else []
    done = subprocess.run([sys.executable, str(CURL), *given, *url], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")


def commands(name: str) -> list[tuple[str, str]]:
    """The blocks of a page without what a translation may change: comments and quoted words."""
    blocks = BLOCK.findall((ROOT / name).read_text())
    return [(kind, re.sub(r"^#.*\n|'[^'{}()]*'", "", text, flags=re.MULTILINE)) for kind, text in blocks]


@pytest.mark.parametrize(("page", "translation"), TRANSLATED.items())
def test_a_translated_page_shows_the_same_commands(page: str, translation: str) -> None:
    assert commands(translation) == commands(page)


LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
WRITTEN = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))


@pytest.mark.parametrize("name", WRITTEN)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    dead = [link for link in LINK.findall(text) if "://" not in link and not ((ROOT / name).parent / link).exists()]
    assert dead == []
