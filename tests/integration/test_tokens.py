"""A server that checks tokens, as people, clients, workers and the command line meet it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from typer.testing import Result

from dueline import AsyncClient, Client, DuelineApiError, NotFound, Patience
from dueline.dialects.table import DIALECTS
from dueline.worker import connect
from tests.kit.waiting import until
from tools.route_samples import SAMPLES

from .serve_kit import served, typed

TEXT = re.compile(r"dl_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
ONE_TRY = Patience(deadline_s=0)


class TokenServer:
    """A server with `auth = "tokens"`, and the token of its operator."""

    def __init__(self, url: str, data: Path) -> None:
        self.url = url
        self.log = data.with_suffix(".log")
        found = re.search(r"dueline (token create NAME --right admin .*?--url \S+?)\"", self.log.read_text())
        assert found is not None, self.log.read_text()
        self.made = typed(*shlex.split(found[1].replace("NAME", "ops")))
        self.admin = self.made.stdout.strip()

    def client(self, token: str | None, namespace: str | None = None) -> Client:
        return Client(self.url, namespace, token, patience=ONE_TRY)

    def typed(self, *arguments: str, token: str | None = None) -> Result:
        return typed(*arguments, "--url", self.url, DUELINE_TOKEN=self.admin if token is None else token)


@pytest.fixture(scope="module")
def token_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    data = tmp_path_factory.mktemp("tokens") / "data"
    choices = {f"DUELINE_DIALECTS__{spec.name.upper()}__AUTH": "path" for spec in DIALECTS[1:]}
    choices["DUELINE_DIALECTS__OUQIANG__HOLD_MS"] = "1"
    with served(data, DUELINE_SERVER__AUTH="tokens", DUELINE_LOG__LEVEL="debug", **choices) as url:
        yield TokenServer(url, data)


def code(client: Client, topic: str = "t") -> str:
    """The error code of a send, or "sent"."""
    try:
        client.send(topic, 1, delay="1h")
    except DuelineApiError as error:
        return error.code
    return "sent"


def test_a_server_without_tokens_says_how_to_make_the_first_one_and_that_works(token_server: TokenServer) -> None:
    assert token_server.made.exit_code == 0, token_server.made.output
    assert TEXT.fullmatch(token_server.admin)
    with token_server.client(token_server.admin) as client:
        assert client.info().auth == "tokens"


def test_a_call_without_a_valid_token_is_refused_and_health_is_public(token_server: TokenServer) -> None:
    for headers in ({}, {"Authorization": f"Bearer dl_{'0' * 12}_{'A' * 43}"}, {"Authorization": "Bearer x"}):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{token_server.url}/v1/topics", headers=headers))
        with refused.value as answer:
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert json.load(answer)["error"]["code"] == "unauthorized"
    for path in ("/healthz", "/readyz", "/openapi.json"):
        with urlopen(f"{token_server.url}{path}") as answer:
            assert answer.status == 200
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{token_server.url}/metrics")
    refused.value.close()
    assert refused.value.status == 401


def test_a_token_may_do_what_it_says_and_its_namespace_needs_no_header(token_server: TokenServer) -> None:
    with token_server.client(token_server.admin) as admin:
        made = admin.create_token("billing", ["send"], topics=["billing-*"], namespace="shop")
        assert (made.state, made.rights, made.namespace, made.topics) == ("active", ("send",), "shop", ("billing-*",))
        with token_server.client(made.token) as client, token_server.client(made.token, "other") as elsewhere:
            assert [code(client, "billing-1"), code(client, "other"), code(elsewhere, "billing-1")] == [
                "sent",
                "forbidden",
                "forbidden",
            ]
            with pytest.raises(DuelineApiError, match="right pull"):
                client.pull("billing-1")
            with pytest.raises(DuelineApiError, match="right admin"):
                list(client.tokens())
        assert [topic.topic for topic in Client(token_server.url, "shop", token_server.admin).topics()] == ["billing-1"]


async def test_async_clients_and_workers_send_their_token(
    token_server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncClient(token_server.url, token=token_server.admin) as client:
        made = await client.create_token("worker", ["send", "pull"])
        assert [token.id async for token in client.tokens()][-1] == made.id
    for token in (made.token, None):
        monkeypatch.setenv("DUELINE_TOKEN", made.token if token is None else "wrong")
        queue = connect(token_server.url, token=token)
        assert (await queue.send("work", 1)).result == "created"
        (job,) = await queue.pull(["work"])
        assert (await queue.ack([job]))[0].ok
        await queue.close()


def test_a_rotated_token_has_two_texts_for_a_while(token_server: TokenServer) -> None:
    with token_server.client(token_server.admin) as admin:
        first = admin.create_token("rotated", ["send"])
        second = admin.rotate_token(first.id, overlap="1h")
        assert [code(token_server.client(one.token)) for one in (first, second)] == ["sent", "sent"]
        assert admin.token(first.id).old_secret_until_ms is not None
        third = admin.rotate_token(first.id, overlap=0)
        assert [code(token_server.client(one.token)) for one in (first, second, third)] == [
            "unauthorized",
            "unauthorized",
            "sent",
        ]


async def test_a_parked_poll_of_a_revoked_token_ends_and_others_stay(token_server: TokenServer) -> None:
    async with AsyncClient(token_server.url, token=token_server.admin) as admin:
        made = [await admin.create_token(name, ["pull", "send"]) for name in ("revoked", "rotated")]
        clients = [AsyncClient(token_server.url, token=one.token, patience=ONE_TRY) for one in made]
        polls = [asyncio.ensure_future(client.pull("parked", wait=60)) for client in clients]
        await until(lambda: waiters(admin, "parked"), lambda count: count == 2)
        await admin.rotate_token(made[1].id)
        await admin.revoke_token(made[0].id)
        with pytest.raises(DuelineApiError) as ended:
            await asyncio.wait_for(polls[0], 10)
        assert ended.value.code == "unauthorized"
        assert not polls[1].done()
        await clients[1].send("parked", "hello")
        (job,) = await asyncio.wait_for(polls[1], 10)
        assert job.json() == "hello"
        for client in clients:
            await client.close()


async def waiters(admin: AsyncClient, topic: str) -> int:
    try:
        return (await admin.topic(topic)).waiters
    except NotFound:
        return 0


def test_an_admin_of_one_namespace_stays_in_it(token_server: TokenServer) -> None:
    with token_server.client(token_server.admin) as admin:
        bound = admin.create_token("shop admin", ["admin"], namespace="mall")
        other = admin.create_token("other", ["send"], namespace="other")
    with token_server.client(bound.token) as client:
        own = client.create_token("till", ["send", "manage"])
        assert own.namespace == "mall"
        assert [token.id for token in client.tokens()] == [bound.id, own.id]
        for refused in ("other", "*"):
            with pytest.raises(DuelineApiError) as error:
                client.create_token("till", ["send"], namespace=refused)
            assert (error.value.code, error.value.field) == ("forbidden", "namespace")
        with pytest.raises(NotFound):
            client.revoke_token(other.id)
        client.revoke_token(own.id)
    assert code(token_server.client(own.token)) == "unauthorized"
    assert code(token_server.client(other.token)) == "sent"


def test_the_command_line_makes_lists_rotates_and_revokes_tokens(token_server: TokenServer, tmp_path: Path) -> None:
    made = token_server.typed(
        "token", "create", "till", "--right", "send", "--right", "read", "--topic", "a*", "--expires", "9d"
    )
    assert made.exit_code == 0, made.output
    assert TEXT.fullmatch(made.stdout.strip())
    id = made.stdout.split("_")[1]
    file = tmp_path / "till.token"
    file.write_text(made.stdout)
    sent = typed("send", "a1", "hi", "--url", token_server.url, "--token-file", str(file))
    assert sent.exit_code == 0, sent.output
    assert token_server.typed("send", "b1", "hi", token=made.stdout.strip()).exit_code == 1

    listed = token_server.typed("token", "list", "-o", "jsonl")
    (row,) = [row for row in map(json.loads, listed.stdout.splitlines()) if row["id"] == id]
    assert (row["name"], row["rights"], row["namespace"], row["topics"]) == (
        "till",
        ["send", "read"],
        "default",
        ["a*"],
    )
    assert id in token_server.typed("token", "list", "--all").stdout

    rotated = token_server.typed("token", "rotate", id, "--overlap", "0s", "-o", "json")
    assert json.loads(rotated.stdout)["id"] == id
    assert code(token_server.client(made.stdout.strip()), "a1") == "unauthorized"
    assert code(token_server.client(json.loads(rotated.stdout)["token"]), "a1") == "sent"

    assert "revoked" in token_server.typed("token", "revoke", id).stdout
    assert code(token_server.client(json.loads(rotated.stdout)["token"]), "a1") == "unauthorized"


def test_a_token_has_limits_of_its_own(token_server: TokenServer) -> None:
    made = json.loads(
        token_server.typed(
            "token", "create", "slow", "--right", "send", "--requests-per-s", "0.001", "-o", "json"
        ).stdout
    )
    assert (made["requests_per_s"], made["max_polls"]) == (0.001, None)
    slow = token_server.client(made["token"])
    assert [code(slow) for _ in range(11)] == ["sent"] * 10 + ["rate_limited"]  # at least 10 may come at once
    assert code(token_server.client(token_server.admin)) == "sent"
    shown = token_server.client(token_server.admin).token(made["id"])
    assert shown.requests_per_s == 0.001


def test_the_limits_of_a_token_are_in_its_answers_in_the_metrics_and_in_top(token_server: TokenServer) -> None:
    limits = (
        "--max-pending-jobs",
        "1",
        "--max-queued-jobs",
        "9",
        "--push-allow",
        "10.0.0.0/8",
        "--push-allow",
        "a.corp",
    )
    rights = ("--right", "send", "--right", "read", "--right", "push")
    namespace = ("--namespace", "limited")
    made = json.loads(token_server.typed("token", "create", "small", *rights, *limits, *namespace, "-o", "json").stdout)
    assert (made["max_pending_jobs"], made["max_queued_jobs"], made["push_allow"]) == (1, 9, ["10.0.0.0/8", "a.corp"])
    small = token_server.client(made["token"])
    assert [code(small) for _ in range(3)] == ["sent", "rate_limited", "rate_limited"]
    with pytest.raises(DuelineApiError) as refused:
        small.set_push("t", "http://8.8.8.8/")
    assert refused.value.code == "egress_refused"
    own = {row.limit: (row.max, row.used, row.refused) for row in small.info().limits_in_use if row.token_id}
    assert own == {"token_max_pending_jobs": (1, 1, 2), "token_max_queued_jobs": (9, 1, 0)}  # this call is one of them
    seen = [row for row in token_server.client(token_server.admin, "limited").info().limits_in_use if row.token_id]
    assert {row.limit: (row.token_id, row.refused) for row in seen} == {
        "token_max_pending_jobs": (made["id"], 2),
        "token_max_queued_jobs": (made["id"], 0),
    }
    other = json.loads(
        token_server.typed("token", "create", "other", "--right", "admin", *namespace, "-o", "json").stdout
    )
    assert [row for row in token_server.client(other["token"]).info().limits_in_use if row.token_id] == []
    page = Request(f"{token_server.url}/metrics", headers={"Authorization": f"Bearer {token_server.admin}"})
    with urlopen(page) as answer:
        text = answer.read().decode()
    assert 'dueline_limit_refused_total{limit="token_max_pending_jobs",namespace="limited"} 2.0' in text
    assert 'dueline_limit_use{limit="token_max_pending_jobs",namespace="limited"} 1.0' in text
    for token in (made["token"], token_server.admin):
        top = token_server.typed("top", "--once", *namespace, token=token).output
        assert f"refused by limits: token_max_pending_jobs of {made['id']} 2 (limit 1)" in top
    revoked = token_server.typed("token", "revoke", made["id"]).stdout
    assert "10.0.0.0/8, a.corp" in revoked


def test_wrong_uses_of_the_token_commands_have_their_exit_codes(token_server: TokenServer) -> None:
    uses = {
        ("token", "revoke", "nobody"): 3,
        ("token", "create", "x", "--right", "send", "--expires", "soon"): 2,
        ("token", "create", "x", "--right", "fly"): 2,
        ("token", "create", "x"): 2,
        ("token", "rotate", "nobody", "--overlap", "later"): 2,
    }
    assert {use: token_server.typed(*use).exit_code for use in uses} == uses


def everything_answered(token_server: TokenServer, text: str) -> str:
    """The answers of every route to this token: in the header, in the path, and in the path with a wrong secret."""
    answers: list[str] = []
    for sample in SAMPLES.values():
        path, media, body = sample.written("t")
        for prefix, headers in (("", {"Authorization": f"Bearer {text}"}), (f"/{text}", {}), (f"/{text[:-1]}!", {})):
            request = Request(f"{token_server.url}{prefix}{path}", body or None, {"Content-Type": media, **headers})
            request.method = sample.method
            try:
                with urlopen(request) as answer:
                    answers.append(f"{answer.headers}{answer.read().decode()}")
            except HTTPError as refused:
                with refused as answer:
                    answers.append(f"{answer.headers}{answer.read().decode()}")
    return "\n".join(answers)


def test_no_text_of_a_token_is_in_the_log_the_data_or_an_answer(token_server: TokenServer) -> None:
    with token_server.client(token_server.admin) as admin:
        text = admin.create_token("canary", ["admin"], namespace="*").token
        answers = everything_answered(token_server, text)
        entries = repr(list(admin.audit()))
    log = token_server.log.read_text()
    stored = b"".join(file.read_bytes() for file in token_server.log.with_suffix("").rglob("*") if file.is_file())
    shown = {"log": log, "data": stored.decode("latin-1"), "answers": answers, "audit": entries}
    canaries = {"log": "there are no tokens", "data": "canary", "answers": "dueline_build_info", "audit": "canary"}
    assert {name for name, text in shown.items() if canaries[name] not in text} == set()  # it sees what there is
    assert {
        name for name, shown_text in shown.items() for one in (text, token_server.admin) if one[16:-1] in shown_text
    } == set()


def test_changes_of_tokens_are_in_the_audit_log_without_their_texts(token_server: TokenServer) -> None:
    with token_server.client(token_server.admin) as admin:
        made = admin.create_token("audited", ["send"])
        rotated = admin.rotate_token(made.id)
        admin.revoke_token(made.id)
        found = [entry for entry in admin.audit() if made.id in str(entry.details)]
    assert [entry.action for entry in found] == ["revoke_token", "rotate_token", "create_token"]
    assert {entry.who for entry in found} == {token_server.admin.split("_")[1]}
    assert "audited" in str(found)
    assert [one.token[16:] in str(found) for one in (made, rotated)] == [False, False]
