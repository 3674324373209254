"""The audit log of a real server with every dialect, and no secret in it or in anything else that people read.

A canary, the name of a topic, goes the same ways as the secrets. It must be found in every place that is searched for
secrets, so that a search in the wrong place fails.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, urlencode

import pytest

from dueline.api.operations import OPERATIONS
from dueline.config.settings import Settings
from dueline.dialects.http import Route
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App
from dueline.testing.process import free_port
from dueline.testing.server import PrivateServer
from tests.kit.valkey import PrivateValkey

from .serve_kit import typed

CANARY = "canary-topic"
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
SECRETS = {
    "a token": "dl_k1_" + "TokenSecret0" * 4,
    "a signing secret": "whsec_" + base64.b64encode(b"SigningSecret-that-is-long-enough").decode(),
    "a credential in a push header": "HeaderSecret1HeaderSecret1",
    "a password in a push URL": "UrlPassword2UrlPassword2",
    "the query of a push URL": "UrlQuery3UrlQuery3UrlQuery3",
    "the store's password": "StoreSecret4StoreSecret4",
    "a job's body": "BodySecret5BodySecret5",
    "a job's header": "JobHeader6JobHeader6",
}
TOKEN, SIGNING, HEADER, URL_PASSWORD, URL_QUERY, STORE_PASSWORD, BODY, JOB_HEADER = SECRETS.values()


def found_in(text: str) -> list[str]:
    """Which secrets a text contains, as they are or encoded."""

    def forms(secret: str) -> list[str]:
        encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
        return [secret, quote(secret, safe=""), encoded, base64.urlsafe_b64encode(secret.encode()).decode().rstrip("=")]

    return [name for name, secret in SECRETS.items() if any(form in text for form in forms(secret))]


class Call(NamedTuple):
    method: str
    path: str
    body: bytes = b""
    kind: str = JSON


class Caller:
    """Makes calls over one address and keeps every answer that is an error."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.errors: list[str] = []

    def ask(self, call: Call, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            given = {"Content-Type": call.kind, "Authorization": f"Bearer {TOKEN}", **headers}
            connection.request(call.method, call.path, call.body, given)
            answer = connection.getresponse()
            text = f"{answer.getheaders()} {answer.read().decode(errors='replace')}"
        finally:
            connection.close()
        is_error = answer.status >= 400 or '"success":false' in text or '"code":1' in text or '"code":4' in text
        if is_error:
            self.errors.append(text)
        return answer.status, text


def form(**fields: str) -> bytes:
    return urlencode(fields).encode()


def value(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


T = f"/v1/topics/{CANARY}"
S = f"/v1/schedules/{CANARY}"
EXFE_URL = f"http://127.0.0.1:1/x?key={URL_QUERY}"
REFUSED_URL = f"http://me:{URL_PASSWORD}@10.1.2.3/x?key={URL_QUERY}"
EXFE = "/v3/queue/{key}/POST/" + base64.urlsafe_b64encode(EXFE_URL.encode()).decode()
CAMELLIA = "/camellia/delayQueue/"
JOB = {"id": "a", "body": BODY, "headers": {"x-own": JOB_HEADER}, "delay": "1h"}

CHANGES: dict[str, tuple[Call, dict[str, Any]]] = {
    "put_topic": (
        Call("PUT", T, value(lease_ms=60_000, on_dead={"url": f"http://127.0.0.1:1/x?k={URL_QUERY}"})),
        {"fields": ["lease_ms", "on_dead"]},
    ),
    "put_push": (
        Call(
            *("PUT", T + "/push"),
            value(
                url=f"http://127.0.0.1:1/hook?key={URL_QUERY}",
                headers={"Authorization": f"Bearer {HEADER}", "X-Api-Key": HEADER},
                secrets=[SIGNING],
                retry="none",
            ),
        ),
        {"fields": ["url", "headers", "retry", "secrets"], "origin": "http://127.0.0.1:1"},
    ),
    "pause_push": (Call("POST", T + "/push/pause"), {}),
    "resume_push": (Call("POST", T + "/push/resume"), {}),
    "cancel": (Call("DELETE", T + "/jobs/a"), {"ids": ["a"], "ids_count": 1}),
    "cancel_jobs": (
        Call("POST", T + "/cancel", value(filter={"tag": "none"})),
        {"filter": {"tag": "none"}, "matched": 0, "changed": 0},
    ),
    "revive": (Call("POST", T + "/dead/revive", value(filter={})), {"filter": {}, "matched": 0, "changed": 0}),
    "purge": (
        Call("POST", T + "/dead/purge", value(filter={}, dry_run=True)),
        {"filter": {}, "dry_run": True, "matched": 0, "changed": 0},
    ),
    "pause": (Call("POST", T + "/pause"), {}),
    "resume": (Call("POST", T + "/resume"), {}),
    "remove_push": (Call("DELETE", T + "/push"), {}),
    "camellia_delete_msg": (
        Call("POST", CAMELLIA + "deleteMsg", form(topic=CANARY, msgId="c"), FORM),
        {"ids": ["c"], "ids_count": 1},
    ),
    "camellia_health_online": (Call("GET", "/camellia/health/online"), {}),
    "ouqiang_delete": (Call("POST", "/delete", value(id="o")), {"ids": ["o"], "ids_count": 1, "changed": 1}),
    "youzan_delete": (
        Call("POST", "/", value(command="delete", id="y")),
        {"ids": ["y"], "ids_count": 1, "changed": 1},
    ),
    "exfe_drop": (Call("DELETE", EXFE.format(key="group")), {"merge_key": "group", "changed": 1}),
    "put_schedule": (
        Call("PUT", S, value(topic="scheduled", every="1w", job={"body": BODY, "headers": {"X-Key": JOB_HEADER}})),
        {"ids": [CANARY], "ids_count": 1, "fields": ["topic", "job", "every"]},
    ),
    "pause_schedule": (Call("POST", S + "/pause"), {"ids": [CANARY], "ids_count": 1}),
    "resume_schedule": (Call("POST", S + "/resume"), {"ids": [CANARY], "ids_count": 1}),
    "delete_schedule": (Call("DELETE", S), {"ids": [CANARY], "ids_count": 1}),
    "delete_topic": (Call("DELETE", T), {}),
}
SENDS = (
    Call("POST", T + "/jobs", value(**JOB)),
    Call("POST", CAMELLIA + "sendMsg", form(topic=CANARY, msgId="c", msg=BODY, delayMillis="600000"), FORM),
    Call("POST", "/push", value(topic=CANARY, id="o", delay=600, ttr=9, body=BODY)),
    Call("POST", "/", value(command="add", topic=CANARY, id="y", delay=600, body=BODY)),
    Call("POST", "/job/add", value(taskId="s", taskType=CANARY, appName="a", delayTime=9999999999999, params=BODY)),
    Call("POST", EXFE.format(key="group") + "?ontime=9999999999", BODY.encode(), FORM),
)
MISTAKES = (
    Call("POST", T + "/jobs", value(**JOB, extra=BODY)),
    Call("POST", T + "/jobs", value(id="b", body=BODY, body_base64=base64.b64encode(BODY.encode()).decode())),
    Call("POST", T + "/jobs", value(id="b", body=BODY, headers={"Dueline-Url": JOB_HEADER})),
    Call("POST", T + "/jobs", value(id="b", body=BODY, headers=[JOB_HEADER])),
    Call("POST", T + "/jobs", f'{{"body": "{BODY}'.encode()),
    Call("POST", T + "/jobs", BODY.encode(), "text/plain"),
    Call("PATCH", T + "/jobs/a", value(body=BODY, version=99)),
    Call("PUT", T + "/push", value(url=f"http://me:{URL_PASSWORD}@127.0.0.1:1/x?key={URL_QUERY}")),
    Call("PUT", T + "/push", value(url=f"http://10.1.2.3/x?key={URL_QUERY}", headers={"Authorization": HEADER})),
    Call("PUT", T + "/push", value(url=f"ftp://me:{URL_PASSWORD}@127.0.0.1/?{URL_QUERY}")),
    Call("PUT", T + "/push", value(url=f"http://127.0.0.1:1/?{URL_QUERY}", headers={"X-Api-Key": HEADER + "\r\nx"})),
    Call("PUT", T + "/push", value(url=f"http://127.0.0.1:1/?{URL_QUERY}", secrets=[SIGNING, SIGNING])),
    Call("PUT", T + "/push", value(url=f"http://127.0.0.1:1/?{URL_QUERY}", secrets=[SIGNING + "!"])),
    Call("PUT", T + "/push", value(url=f"http://127.0.0.1:1/?{URL_QUERY}", secrets=SIGNING)),
    Call("PUT", T, value(on_dead={"url": f"http://me:{URL_PASSWORD}@127.0.0.1:1/?{URL_QUERY}"})),
    Call("DELETE", f"{T}/jobs/{TOKEN}"),
    Call("POST", CAMELLIA + "sendMsg", form(topic=CANARY, msg=BODY, delayMillis="x"), FORM),
    Call("POST", "/push", f'{{"topic":"{CANARY}","id":"o","body":"{BODY}"'.encode()),
    Call("POST", "/", value(command="add", topic=CANARY, id="y", delay=-1, body=BODY)),
    Call("POST", "/job/add", value(taskId="s", taskType=CANARY, params=BODY, delayTime="x")),
    Call(
        "POST", "/v3/queue/k/POST/" + base64.urlsafe_b64encode(REFUSED_URL.encode()).decode() + "?ontime=5", b"1", FORM
    ),
    Call("POST", f"/{TOKEN}/no/such/path", BODY.encode()),
    Call("GET", f"/no/such/path/{TOKEN}?token={TOKEN}"),
)


class Seen(NamedTuple):
    """Everything that people may read, and the entries of the audit log, oldest first."""

    output: str
    metrics: str
    audit: str
    errors: str
    entries: list[dict[str, Any]]
    first: int  # how many entries CHANGES made


def routes() -> list[Route]:
    [front] = App(Settings(), ExternalStore("unix:///nowhere")).fronts
    return front.router.routes()


def call_every_route(caller: Caller) -> None:
    """Each route with bodies that it does not understand, the token in front of the path and in the header."""
    for route in routes():
        path = re.sub(r"\{\w+\}", CANARY, route.pattern.replace("{place*}", EXFE.format(key="k")[len("/v3/queue/") :]))
        if path.endswith("offline"):
            continue
        if path.endswith("/events"):
            path += "?wait_ms=0"  # otherwise the answer does not end
        for body, kind in (
            (value(secret=BODY), JSON),
            (form(msg=BODY, topic=CANARY, longPollingTimeoutMillis="1"), FORM),  # a long poll that ends at once
            (b"{" + BODY.encode(), JSON),
        ):
            method = "POST" if route.method == "*" else route.method
            caller.ask(Call(method, path, b"" if method == "GET" else body, kind), Cookie=f"session={TOKEN}")
            caller.ask(Call(method, f"/{TOKEN}{path}", b"" if method == "GET" else body, kind))


@contextlib.contextmanager
def running(folder: Path, store: PrivateValkey) -> Iterator[PrivateServer]:
    variables = {
        "DUELINE_STORE__URL": f"redis://:{STORE_PASSWORD}@127.0.0.1:{store.port}/0",
        "DUELINE_LOG__LEVEL": "debug",
        "DUELINE_PUSH__ALLOW": "127.0.0.0/8",
    }
    with PrivateServer(folder / "data", env=variables) as server:
        yield server


@pytest.fixture(scope="module")
def store() -> Iterator[PrivateValkey]:
    with PrivateValkey(port=free_port(), options=("--requirepass", STORE_PASSWORD)) as store:
        yield store


@pytest.fixture(scope="module")
def seen(store: PrivateValkey, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    with running(tmp_path_factory.mktemp("audit"), store) as server:
        caller = Caller(server.port)
        for call in SENDS:
            status, text = caller.ask(call)
            assert (status in (200, 201), caller.errors) == (True, []), text
        for name, (call, _) in CHANGES.items():
            status, text = caller.ask(call)
            assert (status in (200, 201), caller.errors) == (True, []), (name, text)
        with server.client() as client:
            first = len(list(client.audit()))
            client.set_push(CANARY, url=f"http://127.0.0.1:1/?key={URL_QUERY}", headers={"Authorization": HEADER})
            client.send(CANARY, BODY, headers={"x-own": JOB_HEADER})
            while not list(client.attempts(CANARY)):  # the failed call is logged before it is listed
                pass
        for call in MISTAKES:
            caller.ask(call)
        call_every_route(caller)
        metrics = caller.ask(Call("GET", "/metrics"))[1]
        entries, cursor = list[dict[str, Any]](), ""
        while cursor is not None:
            _, text = caller.ask(Call("GET", f"/v1/audit?limit=500&cursor={quote_plus(cursor)}"))
            page = json.loads(text[text.index('{"entries"') :])
            entries, cursor = entries + page["entries"], page["next_cursor"]
        store.stop()
        caller.ask(Call("POST", T + "/jobs", value(body=BODY)))
        caller.ask(Call("DELETE", T))
        metrics += caller.ask(Call("GET", "/metrics"))[1]
    entries.reverse()
    errors = "\n".join(caller.errors)
    return Seen("\n".join(server.output), metrics, json.dumps(entries, ensure_ascii=False), errors, entries, first)


def test_the_log_has_each_change_of_every_dialect_with_what_it_was_about(seen: Seen) -> None:
    found = {one["action"]: one["details"] for one in seen.entries[: seen.first]}
    assert found == {action: details for action, (_, details) in CHANGES.items()}


def test_an_entry_of_a_server_has_the_namespace_of_its_dialect_and_the_address_of_the_client(seen: Seen) -> None:
    spaces = {one["action"]: one["namespace"] for one in seen.entries[: seen.first]}
    dialects = {"camellia_delete_msg": "camellia", "camellia_health_online": "camellia", "ouqiang_delete": "ouqiang"}
    dialects |= {"youzan_delete": "youzan", "exfe_drop": "exfe"}
    assert spaces == {action: dialects.get(action, "default") for action in CHANGES}
    origins = {(one["who"], one["address"], one["code"], one["status"]) for one in seen.entries[: seen.first]}
    assert origins == {("", "127.0.0.1", None, 200)} | {("", "127.0.0.1", None, 201)}
    assert len({one["server"] for one in seen.entries}) == 1


def test_only_audited_routes_are_in_the_log(seen: Seen) -> None:
    audited = {route.name for route in routes() if route.audited is True} | {"youzan_delete"}
    assert {one["action"] for one in seen.entries} == audited - {"camellia_health_offline"}
    assert {one.name for one in OPERATIONS if one.audited} < audited


@pytest.mark.parametrize("place", ["output", "metrics", "audit", "errors"])
def test_no_secret_is_where_people_read(seen: Seen, place: str) -> None:
    text = getattr(seen, place)
    assert CANARY in text, "the search is in the wrong place"
    assert found_in(text) == []


def test_the_output_has_the_lines_of_a_failed_push_and_of_a_lost_entry(seen: Seen) -> None:
    """Otherwise the search of the output proves little."""
    lines = [json.loads(line) for line in seen.output.splitlines() if line.startswith("{")]
    assert {"a push failed", "an entry of the audit log could not be written"} <= {line["event"] for line in lines}


def test_lost_entries_are_counted(seen: Seen) -> None:
    """The second page of the metrics is from after the store went away."""
    assert re.findall(r"dueline_audit_lost_total (\d)", seen.metrics) == ["0", "1"]


@pytest.mark.parametrize("name", SECRETS)
def test_the_search_finds_every_secret(name: str) -> None:
    secret = SECRETS[name]
    encoded = base64.b64encode(secret.encode()).decode()
    assert [found_in(f'{{"x": "{text}"}}') for text in (secret, quote(secret, safe=""), encoded)] == [[name]] * 3


def test_a_command_on_a_store_that_is_away_says_so_without_the_password() -> None:
    port = free_port()
    shown = typed("topics", "--url", f"redis://:{STORE_PASSWORD}@127.0.0.1:{port}/0").output
    assert f"127.0.0.1:{port}" in shown
    assert found_in(shown) == []


def test_the_command_line_on_a_store_is_audited_as_local_and_reads_the_log() -> None:
    with PrivateValkey() as store:
        assert typed("topic", "t", "pause", "--url", store.url).exit_code == 0
        shown = typed("audit", "--url", store.url, "--since", "1h", "--who", "local", "-o", "jsonl")
        [entry] = [json.loads(line) for line in shown.stdout.splitlines()]
        assert (entry["who"], entry["action"], entry["topic"], entry["address"]) == ("local", "pause", "t", None)
        assert re.fullmatch(r".+:\d+", entry["server"])
        assert "pause" in typed("audit", "--url", store.url).stdout
        for other in (("--action", "resume"), ("--who", "k1"), ("--namespace", "other"), ("--since", "0ms")):
            assert typed("audit", "--url", store.url, *other, "-o", "jsonl").stdout == "", other


def test_a_client_reads_the_log_of_a_server(tmp_path: Path) -> None:
    with (
        PrivateServer(tmp_path / "data", env={"DUELINE_AUDIT__MAX_ENTRIES": "100"}) as server,
        server.client() as client,
    ):
        for number in range(105):
            client.pause(f"t{number}")
        entries = list(client.audit(page=30))
        assert [one.topic for one in entries] == [f"t{number}" for number in range(104, 4, -1)]
