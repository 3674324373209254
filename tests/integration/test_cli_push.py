"""`dueline push` against a server of few words: what is asked, what is printed, and what never is."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import msgspec
import pytest

from .scripted_server import ScriptedServer, answer
from .test_cli import error, run, sent_body

PUSH = (
    b'{"url":"https://example.com/hook","service":null,"method":"POST","headers":{"X-A":"b"},"timeout_ms":5000,'
    b'"concurrency":4,"rate_per_s":2.5,"success":[200],"retry":{"ladder":["2m"]},"breaker":null,'
    b'"secrets":["whsec_...aaaa"],"paused":false,"state":"open","in_flight":3,"last_error":"answered 500"}'
)
KEPT = {
    "url": "https://example.com/hook",
    "method": "POST",
    "headers": {"X-A": "b"},
    "timeout_ms": 5000,
    "concurrency": 4,
    "rate_per_s": 2.5,
    "success": [200],
    "retry": {"ladder": ["2m"]},
    "breaker": None,
    "secrets": ["whsec_...aaaa"],
    "paused": False,
}
ATTEMPTS = (
    b'{"attempts":[{"id":"a","attempt":2,"at_ms":1800000000000,"status":500,"duration_ms":12,"error":"answered 500",'
    b'"excerpt":"oops"},{"id":"a","attempt":1,"at_ms":1799999999000,"status":null,"duration_ms":30000,'
    b'"error":"no answer","excerpt":null}],"next_cursor":"c"}'
)
NONE = answer(404, error("not_found"))


def test_a_target_is_shown_for_people_and_for_programs() -> None:
    with ScriptedServer([answer(200, PUSH)]) as server:
        assert run("push", "show", "t", "-o", "json", url=server.url).stdout_bytes == PUSH + b"\n"
        table = run("push", "show", "t", url=server.url).stdout
    assert server.requests[0].startswith(b"GET /v1/topics/t/push ")
    lines = {line.split("  ")[0].strip(): " ".join(line.split()) for line in table.splitlines()}
    assert lines["state"] == "state open"
    assert lines["rate"] == "rate 2.5/s"
    assert lines["breaker"] == "breaker none"
    assert lines["secrets"] == "secrets whsec_...aaaa"
    assert lines["last error"] == "last error answered 500"


def test_a_topic_without_a_target_is_not_found() -> None:
    with ScriptedServer([NONE]) as server:
        assert run("push", "show", "t", url=server.url).exit_code == 3


def test_a_new_target_has_what_was_said_and_nothing_else() -> None:
    with ScriptedServer([NONE, answer(201, PUSH)]) as server:
        words = ["url=https://example.com/hook", "timeout_ms=5s", "success=[200,204]", 'retry={"ladder":["2m"]}']
        result = run("push", "set", "t", *words, "-o", "json", url=server.url)
    assert (result.exit_code, result.stdout_bytes) == (0, PUSH + b"\n")
    assert server.requests[1].startswith(b"PUT /v1/topics/t/push ")
    assert sent_body(server, 1) == {
        "url": "https://example.com/hook",
        "timeout_ms": 5000,
        "success": [200, 204],
        "retry": {"ladder": ["2m"]},
    }


def test_setting_one_value_keeps_the_rest_and_the_secrets_that_nobody_knows() -> None:
    with ScriptedServer([answer(200, PUSH)]) as server:
        run("push", "set", "t", "concurrency=9", "rate_per_s=null", url=server.url)
    kept = {name: value for name, value in KEPT.items() if name != "rate_per_s"}
    assert sent_body(server, 1) == {**kept, "concurrency": 9}


def test_a_service_takes_the_place_of_a_url() -> None:
    with ScriptedServer([answer(200, PUSH)]) as server:
        run("push", "set", "t", "service=billing", url=server.url)
    assert sent_body(server, 1) == {**{k: v for k, v in KEPT.items() if k != "url"}, "service": "billing"}


def test_secrets_and_headers_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("whsec_new\nwhsec_old\n")
    (tmp_path / "headers").write_text('{"Authorization": "Bearer x"}')
    with ScriptedServer([answer(200, PUSH)]) as server:
        words = [f"secrets=@{tmp_path / 'secrets'}", f"headers=@{tmp_path / 'headers'}"]
        result = run("push", "set", "t", *words, url=server.url)
    assert result.exit_code == 0
    changed = {"secrets": ["whsec_new", "whsec_old"], "headers": {"Authorization": "Bearer x"}}
    assert sent_body(server, 1) == {**KEPT, **changed}
    assert "whsec_new" not in result.output


def test_a_new_secret_is_written_to_a_file_of_its_owner_and_joins_the_newest_one(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with ScriptedServer([answer(200, PUSH)]) as server:
        result = run("push", "set", "t", "--new-secret", str(file), url=server.url)
    secret = file.read_text().strip()
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sent_body(server, 1) == {**KEPT, "secrets": [secret, "whsec_...aaaa"]}
    assert secret not in result.output


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["adress=https://example.com"],
        ["url"],
        ["secrets=whsec_abc"],
        ["secrets=@/does/not/exist"],
        ["timeout_ms=soon"],
        ["--new-secret", "/does/not/exist/file"],
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_that_sets_nothing(words: list[str]) -> None:
    with ScriptedServer([answer(200, PUSH)]) as server:
        result = run("push", "set", "t", *words, url=server.url)
    assert result.exit_code == 2
    assert [request for request in server.requests if request.startswith(b"PUT")] == []
    assert "whsec_abc" not in result.output


def test_a_secret_for_a_topic_without_a_target_leaves_no_file(tmp_path: Path) -> None:
    with ScriptedServer([NONE]) as server:
        result = run("push", "set", "t", "--new-secret", str(tmp_path / "secret"), url=server.url)
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_target_is_paused_and_resumed(verb: str) -> None:
    body = b'{"topic":"t","paused":%s,"paused_until_ms":null}' % (b"true" if verb == "pause" else b"false")
    with ScriptedServer([answer(200, body)]) as server:
        assert run("push", verb, "t", "-o", "json", url=server.url).stdout_bytes == body + b"\n"
        assert ("yes" in run("push", verb, "t", url=server.url).stdout) is (verb == "pause")
    assert server.requests[0].startswith(b"POST /v1/topics/t/push/" + verb.encode())


def test_a_target_is_removed() -> None:
    body = b'{"topic":"t","result":"removed"}'
    with ScriptedServer([answer(200, body)]) as server:
        assert run("push", "remove", "t", "--yes", "-o", "json", url=server.url).stdout_bytes == body + b"\n"
    assert server.requests[0].startswith(b"DELETE /v1/topics/t/push ")


def test_the_calls_that_were_made_are_listed() -> None:
    with ScriptedServer([answer(200, ATTEMPTS)]) as server:
        result = run("push", "attempts", "t", "--id", "a b", "--limit", "2", url=server.url)
        lines = run("push", "attempts", "t", "-o", "jsonl", url=server.url).stdout.splitlines()
    assert server.requests[0].startswith(b"GET /v1/topics/t/push/attempts?id=a+b&limit=2 ")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["WHEN", "ID", "ATTEMPT", "STATUS", "TOOK", "ERROR"]
    assert (rows[1][-5:-2], rows[1][-2:]) == (["2", "500", "12ms"], ["answered", "500"])
    assert rows[2][-5:] == ["1", "-", "30000ms", "no", "answer"]
    assert "more: --cursor c" in result.stderr
    assert [msgspec.json.decode(line)["attempt"] for line in lines] == [2, 1]


@pytest.mark.parametrize(
    ("word", "on_dead"),
    [
        ("on_dead=failed", {"topic": "failed"}),
        ("on_dead=https://example.com/dead", {"url": "https://example.com/dead"}),
        ('on_dead={"topic":"failed"}', {"topic": "failed"}),
        ("on_dead=null", None),
    ],
)
def test_where_dead_jobs_go_is_said_in_one_word(word: str, on_dead: object) -> None:
    with ScriptedServer([answer(404, error("not_found")), answer(200, b'{"topic":"t","counts":{}}')]) as server:
        assert run("topic", "t", "set", word, url=server.url).exit_code == 0
    assert sent_body(server, 1) == {"on_dead": on_dead}
