"""The commands `events` and `watch`, as processes: on a server, and on a store."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from dueline import Client
from dueline.testing.process import DUELINE

from .serve_kit import environment, served

WITHIN_S = 60


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server, and its store."""
    data = tmp_path_factory.mktemp("cli-events") / "data"
    with served(data) as url:
        yield {"server": url, "store": f"embedded:{data}"}


@pytest.fixture(params=["server", "store"])
def place(request: pytest.FixtureRequest, places: dict[str, str]) -> str:
    return places[request.param]


def begun(url: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DUELINE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(url)
    )


def test_events_are_shown_until_the_count_is_reached(place: str, places: dict[str, str]) -> None:
    topic = f"shown-{len(place)}"
    with begun(place, "events", topic, "--count", "3", "-o", "jsonl") as command, Client(places["server"]) as client:
        while command.poll() is None:  # its start takes a moment, and it shows only what happens after it
            client.send(topic, 1, delay="1h")
            try:
                command.wait(0.2)
            except subprocess.TimeoutExpired:
                pass
        assert command.stdout is not None
        shown = [json.loads(line) for line in command.stdout.read().splitlines()]
    assert command.returncode == 0
    assert len(shown) == 3
    assert {one["event"] for one in shown} <= {"gap", "job"}
    assert {one["topic"] for one in shown if one["event"] == "job"} <= {topic}


@pytest.mark.parametrize(("ends", "code"), [("ack", 0), ("cancel", 1)])
def test_watch_shows_one_job_until_it_has_ended(places: dict[str, str], ends: str, code: int) -> None:
    url, topic = places["server"], f"watched-{ends}"
    with Client(url) as client:
        client.send(topic, 1, id="a")
        with begun(url, "watch", topic, "a") as command:
            assert command.stdout is not None
            assert "watching" in command.stdout.readline()
            [job] = client.pull(topic)
            client.ack(job) if ends == "ack" else client.cancel(topic, "a")
            command.wait(WITHIN_S)
            shown = command.stdout.read()
        assert command.returncode == code, shown
        assert ("acked" if ends == "ack" else "cancelled") in shown or "gap (new)" in shown, "told, or read after a gap"


def test_watching_a_job_that_is_not_there_is_not_found(places: dict[str, str]) -> None:
    with begun(places["server"], "watch", "nowhere", "nothing") as command:
        assert command.wait(WITHIN_S) == 3
