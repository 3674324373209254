"""The limits of a whole server: jobs and pushes of a namespace, the answers of dialects, and where limits are shown."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from .serve_kit import served, typed

CONFIG = """
[push]
allow = ["127.0.0.0/8"]

[namespaces.small]
max_pending_jobs = 3

[namespaces.alone]
push_allow = ["127.0.0.9"]

[namespaces.quiet]
requests_per_s = 0.001

[namespaces.ouqiang]
max_pending_jobs = 1
"""


class Api:
    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)

    def call(self, method: str, path: str, body: Any = None, namespace: str = "default") -> tuple[int, Any]:
        headers = {"Dueline-Namespace": namespace, "Content-Type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        self.answer = self._connection.getresponse()
        data = self.answer.read()
        return self.answer.status, json.loads(data) if data.startswith((b"{", b"[")) else data.decode()

    def send(self, namespace: str, *ids: str, topic: str = "t") -> tuple[int, Any]:
        jobs = [{"id": id, "body": 1, "delay": "1h"} for id in ids]
        return self.call("POST", f"/v1/topics/{topic}/jobs", jobs[0] if len(jobs) == 1 else jobs, namespace)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder: Path = tmp_path_factory.mktemp("limits")
    config = folder / "dueline.toml"
    config.write_text(CONFIG)
    with served(folder / "data", "--config", str(config)) as url:
        yield Api(url)


def test_a_namespace_has_so_many_pending_jobs_and_nothing_more_is_stored(api: Api) -> None:
    assert api.send("small", "a", "b")[0] == 201
    status, refused = api.send("small", "c", "d")  # both or none
    assert (status, refused["error"]["code"]) == (429, "rate_limited")
    assert "namespaces.small.max_pending_jobs" in refused["error"]["message"]
    assert api.answer.headers["retry-after"] == "1"
    assert api.send("small", "e", topic="other")[0] == 201
    assert api.send("small", "f", topic="new")[0] == 429
    topics = api.call("GET", "/v1/topics", namespace="small")[1]["topics"]
    assert {topic["topic"]: topic["counts"]["scheduled"] for topic in topics} == {"t": 2, "other": 1}
    assert api.send("default", "f")[0] == 201
    assert api.call("DELETE", "/v1/topics/t/jobs/a", namespace="small")[0] == 200
    while api.send("small", "g")[0] == 429:  # until the next count, at most a second later
        pass
    assert api.send("small", "h")[0] == 429


def test_a_dialect_answers_429_with_its_own_body(api: Api) -> None:
    pushed = {"topic": "t", "id": "1", "delay": 1000, "ttr": 10, "body": "x"}
    for id in ("1", "2"):
        status, value = api.call("POST", "/push", {**pushed, "id": id})
    assert (status, sorted(value)) == (429, ["code", "data", "message"])
    assert api.answer.headers["retry-after"] == "1"
    assert "namespaces.ouqiang.max_pending_jobs" in value["message"]


def test_a_push_of_a_namespace_goes_only_where_its_list_allows(api: Api) -> None:
    came: list[str] = []

    class Target(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(self.headers["Dueline-Job-Id"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    target = HTTPServer(("127.0.0.1", 0), Target)
    threading.Thread(target=target.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{target.server_port}/"
    try:
        status, refused = api.call("PUT", "/v1/topics/t/push", {"url": url}, "alone")
        assert (status, refused["error"]["code"]) == (403, "egress_refused")
        assert "namespaces.alone.push_allow" in refused["error"]["message"]
        # A name is judged when it is connected to, so that it can be set.
        by_name = url.replace("127.0.0.1", "localhost")
        assert api.call("PUT", "/v1/topics/t/push", {"url": by_name}, "alone")[0] == 201
        assert api.call("PUT", "/v1/topics/t/push", {"url": by_name}, "free")[0] == 201
        for namespace in ("free", "alone"):  # the first leaves a connection open, which the second must not use
            job = {"id": namespace, "body": 1, "max_attempts": 1}
            assert api.call("POST", "/v1/topics/t/jobs", job, namespace)[0] == 201
            state = ""
            while state not in ("done", "dead"):
                state = api.call("GET", f"/v1/topics/t/jobs/{namespace}", namespace=namespace)[1].get("state", "done")
        assert came == ["free"]
        [attempt] = api.call("GET", "/v1/topics/t/push/attempts", namespace="alone")[1]["attempts"]
        assert "namespaces.alone.push_allow" in attempt["error"]
    finally:
        target.shutdown()
        target.server_close()


def test_limits_that_refuse_are_in_the_metrics_in_info_and_in_top(api: Api) -> None:
    statuses = [api.call("GET", "/v1/info", namespace="quiet")[0] for _ in range(12)]
    assert statuses == [200] * 10 + [429] * 2
    assert api.call("GET", "/healthz", namespace="quiet")[0] == 200
    page = api.call("GET", "/metrics")[1]
    assert 'dueline_limit_refused_total{limit="requests_per_s",namespace="quiet"} 2.0' in page
    assert 'dueline_limit_use{limit="max_connections_per_address",namespace=""}' in page
    for namespace, own in (("default", set[str]()), ("small", {"max_pending_jobs"})):
        api.send(namespace, "x")
        rows = api.call("GET", "/v1/info", namespace=namespace)[1]["limits_in_use"]
        assert {row["limit"] for row in rows if row["namespace"] == namespace} == own
        assert {row["limit"] for row in rows if row["namespace"] != namespace} == {
            "max_connections",
            "max_connections_per_address",
            "max_unfinished_per_address",
        }
    api.send("small", "1", "2", "3", "4")
    shown = typed("top", "--once", "--url", api.url, "--namespace", "small").output
    written = json.loads(typed("top", "-o", "json", "--url", api.url, "--namespace", "small").output)
    assert any(row["refused"] for row in written["limits_in_use"])
    assert "refused by limits: max_pending_jobs" in shown
    assert "refused by limits" not in typed("top", "--once", "--url", api.url).output
