"""The command line against a server of few words: options to requests, answers to output, errors to exit codes."""

from __future__ import annotations

import functools
import re
import shlex
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

import dueline
from dueline.cli.commands import SECTIONS
from dueline.cli.main import build

from .scripted_server import CUT, ScriptedServer, answer

SENT = b'{"id":"a","topic":"t","result":"created","state":"scheduled","due_at_ms":1798135200123,"version":1}'
LEASED = (
    b'{"id":"a","topic":"t","body":{"n": 1.0},"attempt":1,"delivery":1,"max_attempts":9,"lease":"L","lease_until_ms":9,'
    b'"due_at_ms":1,"created_at_ms":1,"tags":[],"headers":{},"merge_key":null}'
)
ACKED = b'{"results":[{"id":"a","result":"acked"}]}'
TOPIC = (
    b'{"topic":"t","counts":{"scheduled":1,"ready":2,"leased":3,"done":4,"dead":5,"cancelled":6},"next_due_at_ms":null,'
    b'"oldest_ready_at_ms":null,"waiters":0,"paused":false,"paused_until_ms":null,"partitions":1,'
    b'"policy":{"lease_ms":60000,"max_attempts":null},"push":false}'
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DUELINE_URL", "DUELINE_NAMESPACE", "DUELINE_TOKEN", "DUELINE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str, url: str | None = None, stdin: str | bytes | None = None) -> Result:
    common = [] if url is None else ["--url", url]
    return CliRunner().invoke(build(arguments), [*arguments, *common], input=stdin)


def error(code: str, message: str = "m", **extra: object) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message, "field": None}, **extra})


def sent_body(server: ScriptedServer, number: int = 0) -> Any:
    return msgspec.json.decode(server.requests[number].partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (400, "invalid_field", 2),
        (401, "unauthorized", 1),
        (404, "not_found", 3),
        (409, "job_leased", 4),
        (413, "body_too_large", 1),
        (500, "internal", 1),
        (507, "store_full", 1),
    ],
)
def test_the_exit_code_tells_what_kind_of_failure_it_was(status: int, code: str, exit_code: int) -> None:
    with ScriptedServer([answer(status, error(code))]) as server:
        result = run("get", "t", "a", url=server.url)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert code in result.stderr


def test_in_json_mode_the_error_is_the_apis_own_object_on_stderr() -> None:
    raw = error("not_found", "There is no such job or topic.")
    with ScriptedServer([answer(404, raw)]) as server:
        result = run("get", "t", "a", "-o", "json", url=server.url)
    assert (result.exit_code, result.stdout, result.stderr.encode()) == (3, "", raw + b"\n")


def test_where_no_server_is_the_error_says_how_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = run("topics", url=f"http://127.0.0.1:{port}")
    assert result.exit_code == 1
    assert "start one with: dueline serve" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", "t"],
        ["send"],
        ["send", "t", "x", "--in", "5 minutes"],
        ["send", "t", "x", "--in", "5m", "--at", "2026-12-24T18:00:00Z"],
        ["send", "t", "x", "--header", "nosign"],
        ["send", "t", "{", "--as", "json"],
        ["send", "t", '{"to": ann}'],
        ["send", "t", " [1, 2"],
        ["send", "t", '"half'],
        ["send", "t", "x", "--from", "-"],
        ["send", "t", "--from", "/does/not/exist"],
        ["reschedule", "t", "a"],
        ["cancel", "t"],
        ["cancel", "t", "a", "--tag", "x"],
        ["cancel", "t", "a", "--merge-key", "k"],
        ["cancel", "t", "--tag", "x", "--merge-key", "k"],
        ["send", "t", "x", "--quiet", "5m"],
        ["send", "t", "x", "--max-wait", "5m"],
        ["send", "t", "x", "--max-items", "5"],
        ["send", "t", "x", "--update", "once"],
        ["send", "t", "x", "--merge-key", "k", "--id", "a"],
        ["send", "t", "--merge-key", "k", "--from", "-"],
        ["topic", "t", "explode"],
        ["topic", "t", "pause", "x=1"],
        ["topic", "t", "set"],
        ["dead", "purge", "t"],
        ["dead", "revive", "t", "a", "--all"],
        ["get", "t", "a", "--url", "127.0.0.1:1"],
        ["get", "t", "a", "--token-file", "/does/not/exist"],
        ["get", "t", "a", "-o", "xml"],
        ["fsck", "redis://127.0.0.1:1", "--data", "."],
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_a_usage_error_before_anything_is_sent(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_send_turns_every_option_into_its_field() -> None:
    with ScriptedServer([answer(201, SENT)]) as server:
        result = run(
            *shlex.split(
                "send t '{\"n\": 1.0}' --at 2026-12-24T18:00:00.123Z --id a --on-conflict keep --tag x --tag y "
                "--header k=v=w --ttl 1h --lease 2m --max-attempts 3 -o json"
            ),
            url=server.url,
        )
    assert (result.exit_code, result.stdout_bytes) == (0, SENT + b"\n")
    assert b'"body":{"n": 1.0}' in server.requests[0]
    assert sent_body(server) == {
        "id": "a",
        "body": {"n": 1.0},
        "at_ms": 1798135200123,
        "lease_ms": 120_000,
        "ttl_ms": 3_600_000,
        "max_attempts": 3,
        "on_conflict": "keep",
        "tags": ["x", "y"],
        "headers": {"k": "v=w"},
    }


@pytest.mark.parametrize(
    ("arguments", "stdin", "fields"),
    [
        (["hello"], None, {"body": "hello"}),
        ([], None, {"body": None}),
        (["-"], b'{"a":1}\n', {"body": {"a": 1}}),
        (["-", "--as", "bytes"], b"\x00\xff", {"body_base64": "AP8="}),
        (["42", "--as", "text"], None, {"body": "42"}),
        (["{to: ann}", "--as", "text"], None, {"body": "{to: ann}"}),
        (["12 monkeys"], None, {"body": "12 monkeys"}),
    ],
)
def test_a_body_comes_from_the_argument_or_standard_input(
    arguments: list[str], stdin: bytes | None, fields: dict[str, object]
) -> None:
    with ScriptedServer([answer(201, SENT)]) as server:
        result = run("send", "t", *arguments, "--id", "a", url=server.url, stdin=stdin)
    assert (result.exit_code, sent_body(server)) == (0, {"id": "a", **fields})


def test_a_send_with_a_merge_key_says_what_was_said_about_the_group() -> None:
    appended = SENT.replace(b"created", b"appended").replace(b'"version":1', b'"version":1,"items_count":12')
    with ScriptedServer([CUT, answer(200, appended), answer(200, appended)]) as server:
        options = "--merge-key 'a b' --quiet 5m --max-wait 1h --max-items 50 --header k=v"
        result = run(*shlex.split(f"send t 1 {options}"), url=server.url)
        assert result.exit_code == 0, result.stderr
        timed = run(*shlex.split("send t 1 --merge-key k --in 5s --update always"), url=server.url)
    assert (timed.exit_code, re.sub(r"\s+", " ", result.stdout)) == (0, re.sub(r"\s+", " ", timed.stdout))
    assert "items 12" in re.sub(r"\s+", " ", result.stdout)
    first, again, later = (sent_body(server, number) for number in range(3))
    assert first == again
    item_id = first["merge"].pop("item_id")
    merge = {"key": "a b", "quiet_ms": 300_000, "max_wait_ms": 3_600_000, "max_items": 50}
    assert first == {"body": 1, "merge": merge, "headers": {"k": "v"}}
    assert (len(item_id), item_id != later["merge"].pop("item_id")) == (32, True)
    assert later == {"body": 1, "delay_ms": 5_000, "merge": {"key": "k", "update": "always"}}


def test_the_groups_of_a_key_are_cancelled_by_one_call() -> None:
    done = b'{"matched":2,"cancelled":1,"dry_run":false}'
    with ScriptedServer([answer(200, done)]) as server:
        result = run("cancel", "t", "--merge-key", "k", "--yes", "-o", "json", url=server.url)
    assert (result.exit_code, result.stdout_bytes) == (0, done + b"\n")
    assert sent_body(server) == {"merge_key": "k", "dry_run": False}


def test_the_items_of_a_group_are_shown_as_they_came() -> None:
    leased = LEASED.replace(b'"body":{"n": 1.0}', b'"items":[{"n": 1.0},"x"]').replace(
        b'"merge_key":null', b'"merge_key":"k"'
    )
    with ScriptedServer([answer(200, b'{"jobs":[' + leased + b"]}")]) as server:
        pulled = run("pull", "t", url=server.url)
    assert '[{"n": 1.0},"x"]' in re.sub(r"\s+\n", "", pulled.stdout)


def test_a_send_whose_answer_was_lost_is_repeated_with_the_id_that_was_made_up() -> None:
    with ScriptedServer([CUT, answer(201, SENT)]) as server:
        result = run("send", "t", "x", url=server.url)
    assert result.exit_code == 0
    assert sent_body(server, 0) == sent_body(server, 1)


def test_a_file_of_jobs_is_sent_in_batches_and_every_result_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_bytes(b"".join(b'{"id":"j%d","body":%d}\n' % (n, n) for n in range(700)))

    def results(first: int, last: int) -> bytes:
        rows = b",".join(SENT.replace(b'"a"', b'"j%d"' % n) for n in range(first, last))
        return b'{"results":[' + rows + b"]}"

    with ScriptedServer([answer(201, results(0, 500)), answer(201, results(500, 700))]) as server:
        result = run("send", "t", "--from", str(file), "-o", "jsonl", url=server.url)
    assert result.exit_code == 0, result.stderr
    assert [msgspec.json.decode(line)["id"] for line in result.stdout.splitlines()] == [f"j{n}" for n in range(700)]
    assert [len(sent_body(server, n)) for n in (0, 1)] == [500, 200]  # pyright: ignore[reportArgumentType]


def test_a_refused_line_of_a_file_is_named_and_decides_the_exit_code() -> None:
    refused = b'{"id":"b","error":{"code":"id_exists","message":"taken","field":null}}'
    with ScriptedServer([answer(201, b'{"results":[' + SENT + b"," + refused + b"]}")]) as server:
        result = run("send", "t", "--from", "-", url=server.url, stdin=b'{"id":"a"}\n\n{"id":"b"}\n')
    assert result.exit_code == 4
    assert "line 3 (b): taken" in result.stderr
    assert re.findall(r"(\w+) +(\d+)", result.stdout) == [("created", "1"), ("id_exists", "1")]


def test_a_broken_line_stops_a_file_and_says_how_to_go_on() -> None:
    lines = b"".join(b'{"id":"j%d"}\n' % n for n in range(500)) + b"{broken\n"
    rows = b",".join([SENT] * 500)
    with ScriptedServer([answer(201, b'{"results":[' + rows + b"]}")]) as server:
        result = run("send", "t", "--from", "-", url=server.url, stdin=lines)
    assert (result.exit_code, len(server.requests)) == (2, 1)
    assert "line 501" in result.stderr
    assert "tail -n +501" in result.stderr


@pytest.mark.parametrize(
    ("output", "stdout"),
    [("json", b'{"jobs":[' + LEASED + b"," + LEASED + b"]}\n"), ("jsonl", LEASED + b"\n" + LEASED + b"\n")],
)
def test_pulled_jobs_are_printed_byte_for_byte_and_acked_afterwards(output: str, stdout: bytes) -> None:
    with ScriptedServer([answer(200, b'{"jobs":[' + LEASED + b"," + LEASED + b"]}"), answer(200, ACKED)]) as server:
        result = run("pull", "t", "--max", "2", "--wait", "1s", "--ack", "-o", output, url=server.url)
    assert (result.exit_code, result.stdout_bytes) == (0, stdout)
    assert sent_body(server, 0) == {"max": 2, "wait_ms": 1000}
    assert sent_body(server, 1) == {"jobs": [{"id": "a", "lease": "L"}] * 2}


def test_an_ack_after_the_lease_is_a_conflict_also_when_it_is_the_only_one() -> None:
    raw = error("lease_lost", results=[{"id": "a", "error": {"code": "lease_lost", "message": "m", "field": None}}])
    with ScriptedServer([answer(409, raw)]) as server:
        result = run("ack", "t", "a", "L1", "-o", "json", url=server.url)
    assert (result.exit_code, result.stdout_bytes) == (4, raw + b"\n")


def test_a_list_in_a_file_has_one_line_a_row_and_no_colour() -> None:
    long = LEASED.replace(b'{"n": 1.0}', b'"' + b"x" * 500 + b'"')
    with ScriptedServer([answer(200, b'{"jobs":[' + long + b"," + long + b"]}")]) as server:
        result = run("pull", "t", url=server.url)
    assert [len(line) for line in result.stdout.splitlines()][1:] == [100, 100]
    assert "\x1b" not in result.stdout


def test_the_version_is_an_option_too() -> None:
    asked = run("--version")
    assert (asked.exit_code, asked.stdout) == (0, run("version").stdout)
    assert asked.stdout.startswith(f"dueline {dueline.__version__} ")


def test_what_a_job_carries_cannot_drive_the_terminal() -> None:
    evil = LEASED.replace(b'"id":"a"', b'"id":"a\\u001b[2J\\u009b"')
    with ScriptedServer([answer(200, b'{"jobs":[' + evil + b"]}")]) as server:
        result = run("pull", "t", url=server.url)
    assert "a\\x1b[2J\\x9b" in result.stdout
    assert not {"\x1b", "\x9b"} & set(result.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ["dead", "purge", "t", "a"],
        ["dead", "purge", "t", "--all"],
        ["cancel", "t", "--tag", "x"],
        ["cancel", "t", "--merge-key", "k"],
    ],
)
def test_what_destroys_is_refused_where_nobody_can_be_asked(arguments: list[str]) -> None:
    counted = b'{"matched":7,"cancelled":0,"purged":0,"dry_run":true}'
    with ScriptedServer([answer(200, counted)]) as server:
        result = run(*arguments, url=server.url)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert all(b'"dry_run":true' in request for request in server.requests)


def test_a_call_by_filter_goes_on_until_the_server_is_through() -> None:
    steps = [
        b'{"matched":5,"cancelled":5,"dry_run":false,"complete":false}',
        b'{"matched":2,"cancelled":2,"dry_run":false}',
    ]
    with ScriptedServer([answer(200, step) for step in steps]) as server:
        result = run("cancel", "t", "--tag", "x", "--yes", "-o", "json", url=server.url)
    assert (result.exit_code, len(server.requests)) == (0, 2)
    assert msgspec.json.decode(result.stdout) == {"matched": 7, "cancelled": 7, "dry_run": False}


def test_setting_one_value_keeps_the_rest_of_the_policy() -> None:
    with ScriptedServer([answer(200, TOPIC)]) as server:
        result = run("topic", "t", "set", "max_attempts=3", "-o", "json", url=server.url)
    assert (result.exit_code, result.stdout_bytes) == (0, TOPIC + b"\n")
    assert sent_body(server, 1) == {"lease_ms": 60000, "max_attempts": 3}


def test_all_pages_of_topics_become_one_list() -> None:
    pages = [b'{"topics":[' + TOPIC + b'],"next_cursor":"c"}', b'{"topics":[' + TOPIC + b'],"next_cursor":null}']
    with ScriptedServer([answer(200, page) for page in pages]) as server:
        result = run("topics", "--all", "-o", "json", url=server.url)
    assert result.stdout_bytes == b'{"topics":[' + TOPIC + b"," + TOPIC + b'],"next_cursor":null}\n'
    assert b"cursor=c" in server.requests[1]


def test_the_token_comes_from_its_file_and_never_appears_in_the_output(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("dl_secret\n")
    with ScriptedServer([answer(401, error("unauthorized"))]) as server:
        result = run("get", "t", "a", "--token-file", str(file), url=server.url)
    assert b"Authorization: Bearer dl_secret" in server.requests[0]
    assert "dl_secret" not in result.output


INFO = (
    b'{"version":"0.1.0","namespace":"default","durability":"fsync","store":"embedded","limits":{"max_items":1000},'
    b'"clock_offset_ms":0}'
)


@pytest.mark.parametrize(
    ("script", "exit_code", "levels"),
    [
        ([answer(200, b'{"ready":true}'), answer(200, INFO)], 0, {"server": "ok", "ready": "ok", "durability": "ok"}),
        (
            [
                answer(503, b'{"ready":false,"reasons":["store_down"]}'),
                answer(200, INFO.replace(b"fsync", b"standard")),
            ],
            1,
            {"server": "ok", "ready": "bad", "durability": "warn"},
        ),
        (
            [answer(200, b'{"ready":true}'), answer(200, INFO.replace(b"fsync", b"standard"))],
            1,
            {"ready": "ok", "durability": "warn"},
        ),
        ([answer(200, b"<html>")], 1, {"server": "bad"}),
    ],
)
def test_doctor_judges_what_the_server_says(script: list[bytes], exit_code: int, levels: dict[str, str]) -> None:
    with ScriptedServer(script) as server:
        result = run("doctor", "-o", "json", url=server.url)
    found = {finding["what"]: finding["level"] for finding in msgspec.json.decode(result.stdout)["findings"]}
    assert (result.exit_code, {name: found[name] for name in levels}) == (exit_code, levels)


@pytest.mark.parametrize(
    ("info", "summary"),
    [
        (INFO, "all is well"),
        (INFO.replace(b"fsync", b"standard"), "works, with 1 warning"),
        (INFO.replace(b"fsync", b"standard").replace(b"0.1.0", b"0.0.1"), "works, with 2 warnings"),
    ],
)
def test_doctor_says_that_all_is_well_only_when_it_is(info: bytes, summary: str) -> None:
    with ScriptedServer([answer(200, b'{"ready":true}'), answer(200, info)]) as server:
        result = run("doctor", url=server.url)
    assert (result.stdout.splitlines()[-1], result.exit_code) == (summary, int(summary != "all is well"))


@pytest.mark.parametrize(("auth", "level"), [(b'"none"', "warn"), (b'"tokens"', None), (b"null", None)])
def test_doctor_tells_a_token_that_the_server_does_not_check(tmp_path: Path, auth: bytes, level: str | None) -> None:
    file = tmp_path / "token"
    file.write_text("dl_secret\n")
    info = INFO.replace(b'"limits"', b'"auth":' + auth + b',"limits"')
    with ScriptedServer([answer(200, b'{"ready":true}'), answer(200, info)]) as server:
        result = run("doctor", "-o", "json", "--token-file", str(file), url=server.url)
    found = {finding["what"]: finding["level"] for finding in msgspec.json.decode(result.stdout)["findings"]}
    assert (found.get("token"), result.exit_code) == (level, int(level is not None))


@pytest.mark.parametrize(
    ("auth", "dialects", "level"),
    [
        ("none", {"exfe": "none"}, "ok"),
        ("tokens", {"exfe": "path", "spring": "off"}, "ok"),
        ("tokens", {"exfe": "none", "spring": "off"}, "warn"),
        ("tokens", {}, None),
    ],
)
def test_doctor_shows_who_may_call_the_dialects(auth: str, dialects: dict[str, str], level: str | None) -> None:
    info = msgspec.json.encode({**msgspec.json.decode(INFO), "auth": auth, "dialects": dialects})
    with ScriptedServer([answer(200, b'{"ready":true}'), answer(200, info)]) as server:
        result = run("doctor", "-o", "json", url=server.url)
    found = {one["what"]: one for one in msgspec.json.decode(result.stdout)["findings"]}
    assert found.get("dialects", {"level": None})["level"] == level
    assert all(f"{name} {who}" in found["dialects"]["detail"] for name, who in dialects.items())


ALL = [
    ((section.group, name) if section.group else (name,), examples)
    for section in SECTIONS
    for name, _, examples in section.loaded()
]


@pytest.mark.parametrize(("path", "examples"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_help_has_examples_and_every_example_is_understood(path: tuple[str, ...], examples: list[str]) -> None:
    assert "Examples:" in run(*path, "--help").stdout
    assert [understood(example.rpartition("| ")[2])[: len(path)] for example in examples] == [path] * len(examples)


@functools.cache
def whole_command() -> Any:
    return typer.main.get_command(build())


def understood(line: str) -> tuple[str, ...]:
    """The command that a line names; raises a usage error for an argument or option that it does not have."""
    command, rest, path = whole_command(), shlex.split(line)[1:], tuple[str, ...]()
    while hasattr(command, "commands"):
        path += (rest.pop(0),)
        command = command.commands[path[-1]]
    command.make_context("dueline", rest)
    return path


def test_the_page_of_the_command_line_has_every_command_and_only_what_exists() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    shown = {understood(line) for line in re.findall(r"^    (dueline .*)$", page, re.MULTILINE)}
    assert shown == {path for path, _ in ALL}


def test_a_command_line_loads_only_the_command_that_it_names() -> None:
    def commands(*words: str) -> set[str]:
        made: Any = typer.main.get_command(build(words))
        return set(made.commands)

    assert (commands("send"), commands("dead", "list"), commands("--version")) == ({"send"}, {"dead"}, {"version"})
    assert commands() == commands("--help") == commands("sned") == {path[0] for path, _ in ALL}
