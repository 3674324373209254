"""Both shells on real sockets, before a server of few words: keep-alive, retries with the same id, what is unknown."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import Any

import msgspec
import pytest
import trustme

from dueline import AsyncClient, Client, Leased, Patience, new_job
from dueline.client import errors
from dueline.http1.messages import IDLE_S

from .scripted_server import CUT, HANG, LATE, ScriptedServer, answer
from .shells import Shell, both

SENT = answer(201, b'{"id":"a","topic":"t","result":"created","state":"ready","due_at_ms":5,"version":1}')
RELEASED = answer(200, b'{"results":[{"id":"a","result":"released","due_at_ms":1}]}')
LEASE_LOST = b'{"code":"lease_lost","message":"m","field":null}'
LOST = answer(409, b'{"error":' + LEASE_LOST + b',"results":[{"id":"a","error":' + LEASE_LOST + b"}]}")
LOADING = answer(503, b'{"error":{"code":"loading","message":"m","field":null}}', "Retry-After: 2")
UNKNOWN = answer(503, b'{"error":{"code":"unknown_outcome","message":"m","field":null},"id":"a"}')
GATEWAY = answer(502, b"<html>Bad Gateway</html>")
PATIENT = Patience(first_s=0.1, jitter=0)
LEASED = Leased("t", "a", "L")


def bodies(server: ScriptedServer) -> list[Any]:
    return [msgspec.json.decode(request.partition(b"\r\n\r\n")[2]) for request in server.requests]


def shell(kind: type[Any], server: ScriptedServer, **options: Any) -> Shell:
    """A client that does not sleep, but says how long it would."""
    return Shell(kind, server.url, sleeping=False, **{"patience": PATIENT, **options})


@both
def test_calls_share_one_connection(kind: type[Any]) -> None:
    with ScriptedServer([SENT]) as server, shell(kind, server) as one:
        for _ in range(3):
            one.send("t", 1)
        assert (server.connections, len(server.requests)) == (1, 3)


@both
@pytest.mark.parametrize("trouble", [LOADING, UNKNOWN, CUT, GATEWAY], ids=["loading", "unknown", "cut", "gateway"])
def test_a_send_is_repeated_with_the_id_of_the_first_try(kind: type[Any], trouble: bytes) -> None:
    with ScriptedServer([trouble, trouble, SENT]) as server, shell(kind, server) as one:
        assert one.send("t", 1).result == "created"
        first, second, third = bodies(server)
        assert first == second == third == {"id": first["id"], "body": 1}
        assert one.waits == ([2.1, 2.2] if trouble is LOADING else [0.1, 0.2])


@both
def test_a_release_whose_answer_is_lost_is_repeated_and_its_lease_lost_is_unknown(kind: type[Any]) -> None:
    with ScriptedServer([CUT, RELEASED, CUT, LOST]) as server, shell(kind, server) as one:
        assert one.release(LEASED).result == "released"
        with pytest.raises(errors.UnknownOutcome):
            one.release(LEASED)
        assert len(server.requests) == 4


@both
def test_a_refusal_without_trouble_before_it_is_raised_as_what_it_is(kind: type[Any]) -> None:
    with ScriptedServer([LOST]) as server, shell(kind, server) as one:
        with pytest.raises(errors.LeaseLost) as caught:
            one.ack(LEASED)
        assert (caught.value.id, len(server.requests)) == ("a", 1)
        assert [item.ok for item in one.ack_many([LEASED])] == [False]


@both
def test_a_connection_that_the_server_closed_while_idle_is_opened_again_before_anything_is_sent(
    kind: type[Any],
) -> None:
    with (
        ScriptedServer([RELEASED], closing=True) as server,
        shell(kind, server, patience=Patience(deadline_s=0)) as one,
    ):
        for _ in range(2):  # one try only, so each of them must find a living connection by itself
            one.release(LEASED)
            server.closed.acquire(timeout=10)
            one.turn()
        assert (server.connections, len(server.requests)) == (2, 2)


@both
def test_when_the_patience_ends_the_error_of_the_last_try_is_raised(kind: type[Any]) -> None:
    patience = Patience(deadline_s=0.3, first_s=0.2, jitter=0)
    with ScriptedServer([UNKNOWN]) as server, shell(kind, server, patience=patience) as one:
        with pytest.raises(errors.UnknownOutcome) as caught:
            one.send("t", 1, id="a")
        assert (caught.value.id, one.waits, len(server.requests)) == ("a", [0.2], 2)


@both
def test_a_server_that_does_not_answer_in_time_leaves_the_outcome_unknown_and_the_next_try_a_new_connection(
    kind: type[Any],
) -> None:
    with ScriptedServer([HANG, SENT]) as server, shell(kind, server, timeout_s=0.2) as one:
        assert one.send("t", 1).result == "created"
        first, second = bodies(server)
        assert (first == second, server.connections) == (True, 2)
    with (
        ScriptedServer([HANG]) as server,
        shell(kind, server, timeout_s=0.2, patience=Patience(deadline_s=0)) as one,
        pytest.raises(errors.UnknownOutcome, match="did not answer within"),
    ):
        one.send("t", 1)


@both
def test_an_answer_that_comes_too_late_is_never_that_of_the_next_call(kind: type[Any]) -> None:
    late, next_one = LATE + SENT, SENT.replace(b'"id":"a"', b'"id":"b"')
    patience = Patience(deadline_s=0)
    with ScriptedServer([late, next_one]) as server, shell(kind, server, timeout_s=0.2, patience=patience) as one:
        with pytest.raises(errors.UnknownOutcome):
            one.send("t", 1, id="a")
        assert one.send("t", 1, id="b").id == "b"
        assert server.connections == 2


@both
def test_a_connection_that_was_not_used_for_long_is_not_trusted(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer([SENT]) as server, shell(kind, server) as one:
        one.send("t", 1)
        one.send("t", 1)
        assert server.connections == 1
        monkeypatch.setattr(time, "monotonic", lambda now_s=time.monotonic: now_s() + IDLE_S + 1)
        one.send("t", 1)
        assert server.connections == 2


@both
def test_where_nobody_listens_the_call_was_certainly_not_done(kind: type[Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url, patience = f"http://127.0.0.1:{port}", Patience(unreachable=False)
    with Shell(kind, url, patience=patience) as one, pytest.raises(errors.Unreachable):
        one.get("t", "a")


@both
@pytest.mark.parametrize("strange", [b"-ERR unknown command\r\n", b"SSH-2.0-x\r\n"])
def test_what_does_not_speak_http_is_reported_at_once(kind: type[Any], strange: bytes) -> None:
    with ScriptedServer([strange]) as server, shell(kind, server) as one:
        with pytest.raises(errors.ServerFault) as caught:
            one.get("t", "a")
        assert (caught.value.code, one.waits) == ("bad_answer", [])


@both
@pytest.mark.parametrize("spare", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"x"])
def test_an_answer_that_nobody_asked_for_is_never_the_answer_of_the_next_call(kind: type[Any], spare: bytes) -> None:
    with ScriptedServer([SENT + spare, SENT]) as server, shell(kind, server) as one:
        assert [one.send("t", 1).id for _ in range(2)] == ["a", "a"]
        assert server.connections == 2


@both
def test_a_base_path_token_and_namespace_travel_with_every_call(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUELINE_TOKEN", "secret")
    with ScriptedServer([SENT]) as server, Shell(kind, server.url + "/queue/", namespace="shop") as one:
        one.send("t", 1, id="a")
        head = server.requests[0].partition(b"\r\n\r\n")[0].decode().split("\r\n")
        assert head[0] == "POST /queue/v1/topics/t/jobs HTTP/1.1"
        assert {"Authorization: Bearer secret", "Dueline-Namespace: shop"} <= set(head)


@both
def test_a_client_may_be_closed_at_any_time_also_twice_and_used_again(kind: type[Any]) -> None:
    with ScriptedServer([SENT]) as server, shell(kind, server) as one:
        one.close()
        one.send("t", 1)
        one.close()
        one.close()
        one.send("t", 1)
        assert server.connections == 2


@both
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "localhost:9277"}, "not the address"),
        ({"url": "http://:9277"}, "not the address"),
        ({"url": "http://me:pw@host"}, "a user or password"),
        ({"url": "http://host/?x=1"}, "query"),
        ({"url": "http://host:99999"}, "port"),
        ({"url": "http://host/a b"}, "character"),
        ({"token": "a\r\nX: y"}, "token"),
        ({"namespace": "名"}, "namespace"),
    ],
)
def test_what_cannot_be_an_address_or_a_header_is_refused_before_anything_is_opened(
    kind: type[Any], arguments: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        kind(**arguments)


@both
def test_a_piece_that_is_too_large_for_a_small_server_is_halved_until_it_fits(kind: type[Any]) -> None:
    large = answer(413, b'{"error":{"code":"body_too_large","message":"m","field":null}}')
    one_sent = b'{"id":"%d","topic":"t","result":"created","state":"ready","due_at_ms":5,"version":1}'
    sent = [answer(201, b'{"results":[' + one_sent % n + b"]}") for n in range(2)]
    with ScriptedServer([large, *sent]) as server, shell(kind, server) as one:
        results = one.send_many("t", [new_job(n, id=str(n)) for n in range(2)])
        assert [item.id for item in results] == ["0", "1"]
        assert [[job["id"] for job in body] for body in bodies(server)] == [["0", "1"], ["0"], ["1"]]


@both
def test_a_refused_piece_names_the_job_in_the_whole_list_and_keeps_the_results_before_it(kind: type[Any]) -> None:
    def sent(count: int) -> bytes:
        item = b'{"id":"x","topic":"t","result":"created","state":"ready","due_at_ms":5,"version":1}'
        return answer(201, b'{"results":[' + b",".join([item] * count) + b"]}")

    wrong = answer(400, b'{"error":{"code":"invalid_field","message":"m","field":"[3].delay_ms"}}')
    with ScriptedServer([sent(1000), wrong]) as server, shell(kind, server) as one:
        with pytest.raises(errors.InvalidRequest) as caught:
            one.send_many("t", (new_job(n) for n in range(1500)))
        assert (caught.value.field, len(caught.value.results)) == ("[1003].delay_ms", 1000)


@both
def test_a_server_with_a_certificate_is_called_over_one_connection_and_one_that_nobody_trusts_not_at_all(
    kind: type[Any],
) -> None:
    authority = trustme.CA()
    server_side, client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    authority.configure_trust(client_side)
    with ScriptedServer([SENT], tls=server_side) as server:
        with shell(kind, server, tls=client_side) as one:
            assert [one.send("t", 1).id for _ in range(3)] == ["a"] * 3
            assert server.connections == 1
        with shell(kind, server) as stranger, pytest.raises(errors.ServerFault) as caught:
            stranger.send("t", 1)
        assert (caught.value.code, stranger.waits, len(server.requests)) == ("bad_certificate", [], 3)


def test_threads_share_a_client_and_each_call_has_a_connection_to_itself() -> None:
    barrier = threading.Barrier(4)
    seen: list[str] = []
    with ScriptedServer([SENT]) as server, Client(server.url) as client:

        def one() -> None:
            barrier.wait(10)
            seen.append(client.send("t", 1).id)

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert seen == ["a"] * 4


def test_an_async_client_that_is_used_in_another_event_loop_opens_its_own_connection() -> None:
    import asyncio

    with ScriptedServer([SENT]) as server:
        client = AsyncClient(server.url, timeout_s=5, patience=Patience(deadline_s=0))
        assert [asyncio.run(client.send("t", 1)).id for _ in range(2)] == ["a", "a"]
        assert server.connections == 2
