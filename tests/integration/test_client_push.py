"""Both clients set, read and remove push targets of a real server; nothing is called: the targets are paused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dueline.client import errors

from .serve_kit import served
from .shells import Shell, both

URL = "https://example.com/hook"
SECRET = "whsec_" + "c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nz"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("client") / "data") as address:
        yield address


@both
def test_a_target_is_set_read_paused_and_removed(kind: type[Any], url: str) -> None:
    topic = f"t-{kind.__name__}"
    with Shell(kind, url) as one:
        with pytest.raises(errors.NotFound):
            one.push(topic)
        made = one.set_push(
            topic,
            URL,
            http_method="PUT",
            headers={"X-A": "b"},
            timeout="5s",
            concurrency=2,
            rate_per_s=1.5,
            success=[200],
            retry=["2m", "10m"],
            breaker=False,
            secrets=[SECRET],
            paused=True,
        )
        assert made == one.push(topic)
        assert (made.url, made.method, made.headers, made.timeout_ms) == (URL, "PUT", {"X-A": "b"}, 5000)
        assert (made.concurrency, made.rate_per_s, made.success, made.breaker) == (2, 1.5, (200,), None)
        assert (made.retry, made.secrets) == ({"ladder": ["2m", "10m"]}, ("whsec_..." + SECRET[-4:],))
        assert (made.state, made.in_flight) == ("paused", 0)
        assert list(one.attempts(topic)) == []
        assert (one.resume_push(topic).paused, one.pause_push(topic).paused) == (False, True)
        assert one.set_push(topic, service="billing", paused=True).breaker == {"failures": 10, "open_ms": 30_000}
        assert one.remove_push(topic).result == "removed"
        with pytest.raises(errors.NotAllowed):
            one.set_push(topic, "http://127.0.0.1/")


@both
def test_where_dead_jobs_go_is_a_topic_or_a_url(kind: type[Any], url: str) -> None:
    topic = f"d-{kind.__name__}"
    with Shell(kind, url) as one:
        assert one.set_topic(topic, on_dead="failed").policy["on_dead"] == {"topic": "failed"}
        assert one.set_topic(topic, on_dead=URL).policy["on_dead"] == {"url": URL}
        assert one.set_topic(topic).policy["on_dead"] is None
