"""Node and PHP as they stand on this machine: each program sends, withdraws, pulls and finishes against a real server.

The programs say what they did; the server says what became of the jobs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Client, NotFound

from ..integration.serve_kit import environment, served

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
OLDEST = {
    "node": (18, 0),
    "php": (7, 4),
}  # the first with `fetch`; the first that knows what the programs are written in
PACKAGES = {"node": "nodejs", "php": "php-cli"}
SUFFIX = {"node": "mjs", "php": "php"}


def program(language: str) -> str:
    """The command that runs this language. Skips the test where it is not there, or too old."""
    found = shutil.which(language)
    if found is None:
        pytest.skip(f"{language} is not on this machine (Debian: apt-get install {PACKAGES[language]})")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=20).stdout
    version = re.search(r"(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < OLDEST[language]:
        pytest.skip(
            f"{language} {OLDEST[language][0]}.{OLDEST[language][1]} is needed, this machine has {said.split()[:2]}"
        )
    return found


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("server") / "data") as address:
        yield address


def run(language: str, protocol: str, url: str) -> list[str]:
    """What a program printed, line by line."""
    words = [program(language), str(EXAMPLES / language / f"{protocol}.{SUFFIX[language]}")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment(url))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def end_of(client: Client, topic: str, id: str) -> Any:
    job = client.get(topic, id)
    return job.state, job.attempts, job.last_error


@pytest.mark.parametrize("language", ["node", "php"])
def test_a_program_sends_cancels_pulls_releases_and_acks_by_the_native_api(language: str, url: str) -> None:
    *said, last = run(language, "native", url)
    topic = last.removeprefix("topic ")
    assert said == [
        "sent close-A-1, scheduled",
        "sent close-A-2, scheduled",
        "cancelled close-A-2",
        "released close-A-1: the shop's database is restarting",
        "closed A-1, attempt 2",
        "acked close-A-1",
    ]
    with Client(url) as client:
        ends = {id: end_of(client, topic, id) for id in ("close-A-1", "close-A-2")}
    assert ends == {
        "close-A-1": ("done", 2, "the shop's database is restarting"),
        "close-A-2": ("cancelled", 0, None),
    }


@pytest.mark.parametrize(("protocol", "verb"), [("ouqiang", "pushed"), ("youzan", "added")])
@pytest.mark.parametrize("language", ["node", "php"])
def test_a_program_sends_deletes_pops_and_finishes_by_a_foreign_protocol(
    language: str, protocol: str, verb: str, url: str
) -> None:
    said = run(language, protocol, url)
    unpaid = said[0].removeprefix(f"{verb} ")
    paid = unpaid.removesuffix("1") + "2"
    assert said == [
        f"{verb} {unpaid}",
        f"{verb} {paid}",
        f"deleted {paid}",
        f"popped {unpaid} {unpaid}",
        f"finished {unpaid}",
        "left null",
    ]
    with Client(url, namespace=protocol) as client:
        for id in (unpaid, paid):
            with pytest.raises(NotFound):
                client.get(unpaid.removesuffix("-A-1"), id)


@pytest.mark.parametrize("protocol", ["native", "ouqiang", "youzan"])
@pytest.mark.parametrize("language", ["node", "php"])
def test_a_program_that_reaches_no_server_says_so_and_fails(language: str, protocol: str) -> None:
    words = [program(language), str(EXAMPLES / language / f"{protocol}.{SUFFIX[language]}")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment("http://127.0.0.1:1"))
    assert done.returncode != 0
    assert re.search("fetch failed|no answer from http://127.0.0.1:1", done.stdout + done.stderr)
