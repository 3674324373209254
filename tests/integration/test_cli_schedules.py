"""`dueline schedules` against a server of few words: what is asked, and what is printed."""

from __future__ import annotations

import pytest

from .scripted_server import ScriptedServer, answer
from .test_cli import error, run, sent_body

SCHEDULE = (
    b'{"name":"s","topic":"t","cron":"0 9 * * *","tz":"Europe/Madrid","every":null,"starts_at_ms":null,'
    b'"ends_at_ms":null,"jitter_ms":30000,"misfire":"latest","overlap":"skip","paused":false,"owner":"shop",'
    b'"job":{"body":{"n": 1},"tags":["x"],"headers":{"K":"v"},'
    b'"ttl_ms":60000,"max_attempts":null,"retry":{"ladder":["10s"]}},"version":7,"next_at_ms":1800000000000,'
    b'"last_at_ms":1799913600000,"last_job":"s@1799913600000","last_error":null,"missed_count":2}'
)
EVERY = (
    b'{"name":"e","topic":"t","cron":null,"tz":null,"every":"15m","job":{"body_base64":"AA==","tags":[],"headers":{}},'
    b'"version":1,"paused":true,"last_error":"id_exists"}'
)
SENT = b'{"id":"s@run-5","topic":"t","result":"created","state":"ready","due_at_ms":5,"version":1,"items_count":null}'


def test_a_schedule_is_shown_for_people_and_for_programs() -> None:
    with ScriptedServer([answer(200, SCHEDULE)]) as server:
        assert run("schedules", "show", "s", "-o", "json", url=server.url).stdout_bytes == SCHEDULE + b"\n"
        table = run("schedules", "show", "s", url=server.url).stdout
    assert server.requests[0].startswith(b"GET /v1/schedules/s ")
    lines = {line.split("  ")[0].strip(): " ".join(line.split()) for line in table.splitlines()}
    assert lines["when"] == "when 0 9 * * * Europe/Madrid"
    assert lines["jitter"] == "jitter 30s"
    assert lines["state"] == "state active"
    assert lines["owner"] == "owner shop"
    assert lines["missed"] == "missed 2"
    assert lines["last job"] == "last job s@1799913600000"
    assert lines["body"] == 'body {"n": 1}'
    assert lines["ttl"] == "ttl 1m"
    assert lines["attempts"] == "attempts no limit"
    assert lines["retry"] == 'retry {"ladder":["10s"]}'
    assert "lease" not in lines


def test_schedules_are_listed_with_one_line_each() -> None:
    page = b'{"schedules":[' + SCHEDULE + b"," + EVERY + b'],"next_cursor":null}'
    with ScriptedServer([answer(200, page)]) as server:
        rows = run("schedules", "list", url=server.url).stdout.splitlines()
        jsonl = run("schedules", "list", "-o", "jsonl", url=server.url).stdout_bytes
    assert rows[0].split() == ["NAME", "TOPIC", "WHEN", "NEXT", "LAST", "MISSED", "STATE"]
    assert rows[1].split()[:2] == ["s", "t"]
    assert rows[2].split()[:4] == ["e", "t", "every", "15m"]
    assert rows[2].split()[-1] == "failing"
    assert jsonl == SCHEDULE + b"\n" + EVERY + b"\n"


def test_put_turns_every_option_into_its_field() -> None:
    options = "--every 90m --starts 5 --ends 6 --jitter 10s --misfire all --overlap skip --paused --version 3"
    job = "--tag a --tag b --header K=v --ttl 1m --lease 2m --max-attempts 4"
    with ScriptedServer([answer(200, SCHEDULE)]) as server:
        done = run("schedules", "put", "s", "t", '{"n": 1}', *options.split(), *job.split(), url=server.url)
    assert done.exit_code == 0
    assert server.requests[0].startswith(b"PUT /v1/schedules/s ")
    assert sent_body(server) == {
        "topic": "t",
        "every": "90m",
        "starts_at_ms": 5,
        "ends_at_ms": 6,
        "jitter_ms": 10_000,
        "misfire": "all",
        "overlap": "skip",
        "paused": True,
        "version": 3,
        "job": {
            "body": {"n": 1},
            "tags": ["a", "b"],
            "headers": {"K": "v"},
            "ttl_ms": 60_000,
            "lease_ms": 120_000,
            "max_attempts": 4,
        },
    }


def test_put_sends_only_what_was_said() -> None:
    with ScriptedServer([answer(201, SCHEDULE)]) as server:
        run("schedules", "put", "s", "t", "--cron", "@daily", url=server.url)
    assert sent_body(server) == {"topic": "t", "cron": "@daily", "job": {"body": None}}


@pytest.mark.parametrize(
    ("verb", "asked", "reply"),
    [
        ("run", b"POST /v1/schedules/s/run ", SENT),
        ("pause", b"POST /v1/schedules/s/pause ", SCHEDULE),
        ("resume", b"POST /v1/schedules/s/resume ", SCHEDULE),
    ],
)
def test_a_verb_is_one_call(verb: str, asked: bytes, reply: bytes) -> None:
    with ScriptedServer([answer(200, reply)]) as server:
        assert run("schedules", verb, "s", "-o", "json", url=server.url).stdout_bytes == reply + b"\n"
    assert server.requests[0].startswith(asked)


def test_the_next_occurrences_are_one_line_each() -> None:
    with ScriptedServer([answer(200, b'{"next":[1800000000000,1800000060000]}')]) as server:
        assert len(run("schedules", "next", "s", "-n", "2", url=server.url).stdout.splitlines()) == 3
        lines = run("schedules", "next", "s", "-o", "jsonl", url=server.url).stdout
    assert server.requests[0].startswith(b"GET /v1/schedules/s/next?count=2 ")
    assert lines == "1800000000000\n1800000060000\n"


def test_a_dry_run_shows_the_occurrences_and_stores_nothing() -> None:
    with ScriptedServer([answer(200, b'{"next":[1800000000000,1800000060000]}')]) as server:
        done = run("schedules", "put", "s", "t", "--every", "1m", "--dry-run", "-o", "jsonl", url=server.url)
    assert (done.exit_code, done.stdout) == (0, "1800000000000\n1800000060000\n")
    assert [request.split(b" HTTP")[0] for request in server.requests] == [b"POST /v1/schedules/s/next"]
    assert sent_body(server) == {"topic": "t", "every": "1m", "job": {"body": None}}


def test_a_deletion_is_refused_where_nobody_can_be_asked() -> None:
    with ScriptedServer([answer(200, b'{"name":"s","result":"deleted"}')]) as server:
        assert run("schedules", "delete", "s", url=server.url).exit_code != 0
        assert server.requests == []
        assert run("schedules", "delete", "s", "--yes", url=server.url).exit_code == 0
    assert server.requests[0].startswith(b"DELETE /v1/schedules/s ")


def test_another_version_is_a_conflict() -> None:
    with ScriptedServer([answer(409, error("version_mismatch"))]) as server:
        done = run("schedules", "put", "s", "t", "--every", "1h", "--version", "1", url=server.url)
    assert done.exit_code == 4
