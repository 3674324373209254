"""The sync shell on real sockets: keep-alive, retries with the same id, what cannot be known."""

from __future__ import annotations

import socket

import msgspec
import pytest

from dueline.client import Client, Lease, NewJob, Retry, calls, errors, json_body

from .scripted import CUT, Scripted, answer

SENT = answer(201, b'{"id":"a","topic":"t","result":"created","state":"ready","due_at_ms":5,"version":1}')
LOADING = answer(503, b'{"error":{"code":"loading","message":"m","field":null}}', "Retry-After: 2")
UNKNOWN = answer(503, b'{"error":{"code":"unknown_outcome","message":"m","field":null},"id":"a"}')


def bodies(server: Scripted) -> list[object]:
    return [msgspec.json.decode(request.partition(b"\r\n\r\n")[2]) for request in server.requests]


def client(server: Scripted, waits: list[float], retry: Retry = Retry()) -> Client:
    return Client(server.url, retry=retry, sleep=waits.append, timeout_s=5)


def test_calls_share_one_connection() -> None:
    with Scripted([SENT]) as server, client(server, []) as one:
        for _ in range(3):
            one.ask(calls.send("t", NewJob(body=json_body(1))))
        assert (server.connections, len(server.requests)) == (1, 3)


@pytest.mark.parametrize("trouble", [LOADING, UNKNOWN, CUT], ids=["loading", "unknown", "cut"])
def test_a_send_is_repeated_with_the_id_of_the_first_try(trouble: bytes) -> None:
    waits: list[float] = []
    with Scripted([trouble, trouble, SENT]) as server, client(server, waits) as one:
        assert one.ask(calls.send("t", NewJob(body=json_body(1)))).result == "created"
        first, second, third = bodies(server)
        assert first == second == third
        assert waits == ([2.0, 2.0] if trouble is LOADING else [0.1, 0.2])


def test_a_release_whose_answer_is_lost_is_not_repeated() -> None:
    with Scripted([CUT]) as server, client(server, []) as one:
        with pytest.raises(errors.UnknownOutcome):
            one.ask(calls.release("t", Lease("a", "L")))
        assert len(server.requests) == 1


def test_a_connection_that_the_server_closed_while_idle_is_opened_again_before_anything_is_sent() -> None:
    released = answer(200, b'{"results":[{"id":"a","result":"released","due_at_ms":1}]}')
    with Scripted([released], closing=True) as server, client(server, []) as one:
        for _ in range(2):  # a release may not be repeated, so each of them must find a living connection by itself
            one.ask(calls.release("t", Lease("a", "L")))
            sock = one._connection.sock if one._connection is not None else None
            if sock is not None:
                sock.settimeout(5)
                assert sock.recv(1, socket.MSG_PEEK) == b""  # wait until the end has arrived
        assert (server.connections, len(server.requests)) == (2, 2)


def test_when_the_patience_ends_the_error_of_the_last_try_is_raised() -> None:
    waits: list[float] = []
    with Scripted([UNKNOWN]) as server, client(server, waits, Retry(budget_s=1, first_s=0.4)) as one:
        with pytest.raises(errors.UnknownOutcome) as caught:
            one.ask(calls.send("t", NewJob(id="a", body=json_body(1))))
        assert (caught.value.id, waits, len(server.requests)) == ("a", [0.4], 2)


def test_where_nobody_listens_the_call_was_certainly_not_done() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", retry=Retry(unreachable=False)) as one, pytest.raises(errors.Unreachable):
        one.ask(calls.get("t", "a"))


def test_a_base_path_token_and_namespace_travel_with_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUELINE_TOKEN", "secret")
    with Scripted([SENT]) as server, Client(server.url + "/queue/", namespace="shop") as one:
        one.ask(calls.send("t", NewJob(id="a", body=json_body(1))))
        head = server.requests[0].partition(b"\r\n\r\n")[0].decode().split("\r\n")
        assert head[0] == "POST /queue/v1/topics/t/jobs HTTP/1.1"
        assert {"Authorization: Bearer secret", "Dueline-Namespace: shop"} <= set(head)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "localhost:9277"}, "not the address"),
        ({"url": "http://:9277"}, "not the address"),
        ({"url": "http://me:pw@host"}, "no user or password"),
        ({"url": "http://host/?x=1"}, "query"),
        ({"url": "http://host:99999"}, "ort"),
        ({"token": "a\r\nX: y"}, "token"),
        ({"namespace": "名"}, "namespace"),
    ],
)
def test_what_cannot_be_an_address_or_a_header_is_refused_before_anything_is_opened(
    arguments: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Client(**arguments)
