"""Every route with every kind of token. A call is refused exactly when the table of routes says so.

route x right of the token x its namespace (the right one, another, all) x its topics (the right ones, others, all)
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest

from dueline.dialects.http import TokenPlace
from dueline.engine.commands import Send
from dueline.engine.job import BodyKind
from dueline.engine.tokens import TokenSpec
from dueline.rights import ALL, EVERYTHING, Right
from tools.route_samples import SAMPLES

from ..kit.raw_http import Answer, connect
from .matrix_kit import TOPIC, Caller, Case, Server, ask, rights_of

OWN_TOPICS = (TOPIC, f"*-{TOPIC}", "exfe.queue")  # as the Spring and the EXFE dialect name it
TOPICS = (OWN_TOPICS, ("others",), (ALL,))
RIGHTS = [right for right in Right if right is not Right.NONE]


async def make_tokens(server: Server) -> dict[tuple[Right, str | None, tuple[str, ...]], str]:
    """A token for each combination of a right, a namespace and topics."""
    namespaces = {one.namespace for one in server.declared.values()} - {ALL} | {"foreign"}
    made: dict[tuple[Right, str | None, tuple[str, ...]], str] = {}
    for right, namespace, topics in itertools.product(RIGHTS, (*namespaces, None), TOPICS):
        wish = TokenSpec(f"{right} {namespace}", (right,), namespace, topics)
        made[right, namespace, topics] = (await server.app.engine.tokens.make(wish, EVERYTHING)).text
    return made


def cases(server: Server) -> list[Case]:
    return [
        Case(name, right, namespace, topics)
        for name, one in server.declared.items()
        for right, namespace, topics in itertools.product(
            RIGHTS,
            (one.namespace if one.namespace != ALL else "default", "foreign", None),
            (OWN_TOPICS, ("others",), (ALL,)),
        )
    ]


async def test_a_call_is_refused_exactly_when_the_table_says_so(server: Server) -> None:
    tokens, caller = await make_tokens(server), Caller(server.port)
    everything = cases(server)
    allowed = [case for case in everything if server.declared[case.name].allows(case)]
    forbidden = [case for case in everything if not server.declared[case.name].allows(case)]
    wrong: list[tuple[Case, int]] = []
    for case in forbidden:  # first, because none of them may leave a trace
        answer = await caller.ask(server.declared[case.name], tokens[case.right, case.namespace, case.topics])
        if answer.status != 403:
            wrong.append((case, answer.status))
    assert wrong == []
    assert await server.app.store.directory.topics(None, "", 10) == []
    for case in allowed:
        answer = await caller.ask(server.declared[case.name], tokens[case.right, case.namespace, case.topics])
        if answer.status in (401, 403) or (answer.status == 500 and not case.name.startswith("exfe")):
            wrong.append((case, answer.status))
    assert wrong == []
    print(f"{len(everything)} combinations: {len(allowed)} allowed, {len(forbidden)} refused")


async def test_without_a_valid_token_only_public_routes_answer(server: Server) -> None:
    caller = Caller(server.port)
    unknown = "dl_0123456789ab_" + "A" * 43
    answers = {
        name: [(await caller.ask(one, token)).status == 401 for token in (None, "nonsense", unknown)]
        for name, one in server.declared.items()
    }
    public = [name for name, one in server.declared.items() if one.right is Right.NONE]
    assert [name for name, refused in answers.items() if not any(refused)] == public
    assert [name for name, refused in answers.items() if any(refused) and not all(refused)] == []


async def test_a_caller_without_the_right_or_the_namespace_is_refused_before_the_body_is_sent(server: Server) -> None:
    tokens, caller = await make_tokens(server), Caller(server.port)
    late: list[Case] = []
    for case in cases(server):
        one = server.declared[case.name]
        right_fits = case.right in (one.right, Right.ADMIN) or " " in case.name  # a command, which is in the body
        if one.right is Right.NONE or (right_fits and case.namespace in (one.namespace, None)):
            continue
        answer = await caller.ask(one, tokens[case.right, case.namespace, case.topics], body_bytes=1_000_000)
        if answer.status != 403:
            late.append(case)
    assert late == []


class Secondary(NamedTuple):
    """A call whose topic the token is valid for, with something of another topic beside it."""

    namespace: str
    method: str
    path: str
    body: object
    rights: tuple[Right, ...] = (Right.SEND, Right.PULL, Right.MANAGE, Right.PUSH)


J1 = {"id": "J1", "delay": 3600, "ttr": 60, "body": "attack"}
NEW = {"id": "J1", "body": "attack", "delay": "1h"}
SECONDARY = {
    "on_dead": Secondary("default", "PUT", "/v1/topics/a-x", {"on_dead": {"topic": "b-secret"}}),
    "pull_topics": Secondary("default", "POST", "/v1/pull", {"topics": ["a-x", "b-secret"]}),
    "pop": Secondary("ouqiang", "POST", "/pop", {"topic": "a-x,b-secret"}),
    "push": Secondary("ouqiang", "POST", "/push", {"topic": "a-x", **J1}),
    "add": Secondary("youzan", "POST", "/", {"command": "add", "topic": "a-x", **J1}),
    "job_add": Secondary(
        "spring", "POST", "/job/add", {"taskId": "J1", "appName": "a", "taskType": "x", "delayTime": 4102444800000}
    ),
    **{
        f"send_{rule}": Secondary("ouqiang", "POST", "/v1/topics/a-x/jobs", {**NEW, "on_conflict": rule})
        for rule in ("replace", "keep", "reject")
    },
    "send_many": Secondary("ouqiang", "POST", "/v1/topics/a-x/jobs", [{"body": 1}, {**NEW, "on_conflict": "replace"}]),
    "patch": Secondary("ouqiang", "PATCH", "/v1/topics/a-x/jobs/J1", {"delay": "2h"}),
    "history": Secondary("ouqiang", "GET", "/v1/topics/a-x/jobs/J1/history", None, (Right.READ,)),
    "fire": Secondary("ouqiang", "POST", "/v1/topics/a-x/jobs/J1/fire", None),
    "cancel": Secondary("ouqiang", "DELETE", "/v1/topics/a-x/jobs/J1", None),
}


@pytest.mark.parametrize("name", SECONDARY)
async def test_a_token_for_some_topics_neither_changes_nor_learns_of_a_job_of_another(
    server: Server, name: str
) -> None:
    one, engine = SECONDARY[name], server.app.engine
    secret = Send("J1", b"secret", BodyKind.TEXT, delay_ms=3_600_000)
    await engine.send(one.namespace, "b-secret", secret)
    before = await engine.get(one.namespace, "b-secret", "J1")
    token = (await engine.tokens.make(TokenSpec(name, one.rights, one.namespace, ("a-*",)), EVERYTHING)).text
    answer = await ask(server.port, one.method, one.path, one.body, token)
    by_path_topic = name in ("history", "patch", "fire", "cancel")  # the job is not in the topic of the path
    assert answer.status == (404 if by_path_topic else 403)
    assert b"b-secret" not in answer.body
    assert await engine.get(one.namespace, "b-secret", "J1") == before
    assert [entry.topic for entry in await server.app.store.directory.topics(one.namespace, "", 10)] == ["b-secret"]


async def test_a_token_for_some_topics_neither_stops_nor_replaces_a_worker_of_another(server: Server) -> None:
    rights = (Right.PULL, Right.READ)
    tokens = [
        (await server.app.engine.tokens.make(TokenSpec("worker", rights, "default", topics), EVERYTHING)).text
        for topics in (("a-*",), ("b-*",))
    ]
    about = {"host": "h", "pid": 1, "version": "0", "concurrency": 1, "started_at_ms": 1}
    for token, topic, status in ((tokens[1], "b-secret", 200), (tokens[0], "a-x", 403), (tokens[1], "b-secret", 200)):
        answer = await ask(server.port, "PUT", "/v1/workers/w", {**about, "topics": [topic]}, token)
        assert answer.status == status
        assert b"b-secret" not in answer.body
    for path in ("/v1/workers/w", "/v1/workers/none"):
        assert (await ask(server.port, "DELETE", path, None, tokens[0])).status == 404
    [worker] = (await ask(server.port, "GET", "/v1/workers", None, tokens[1])).json()["workers"]
    assert (worker["topics"], worker["stopped"]) == (["b-secret"], False)
    assert (await ask(server.port, "DELETE", "/v1/workers/w", None, tokens[1])).status == 200


async def test_a_token_for_some_topics_sends_jobs_whose_id_the_server_makes(server: Server) -> None:
    for namespace, job, status in (("ouqiang", {"body": 1}, 201), ("default", NEW, 201), ("ouqiang", NEW, 403)):
        wish = TokenSpec("some", (Right.SEND,), namespace, ("a-*",))
        token = (await server.app.engine.tokens.make(wish, EVERYTHING)).text
        answer = await ask(server.port, "POST", "/v1/topics/a-x/jobs", job, token)
        assert answer.status == status
    assert answer.json()["error"] == {
        "code": "forbidden",
        "message": "Ids are shared by all topics of this namespace, so a send with an id needs a token that is valid "
        'for every topic ("*").',
        "field": "id",
    }


async def test_a_token_for_some_topics_does_not_change_partitions_that_all_topics_share(server: Server) -> None:
    for namespace, wanted, status in (("default", {"partitions": 2}, 201), ("ouqiang", {}, 201)):
        assert (await put_topic(server, namespace, wanted)).status == status
    answer = await put_topic(server, "ouqiang", {"partitions": 2})
    assert (answer.status, answer.json()["error"]["field"]) == (403, "partitions")
    assert (await server.app.engine.topic("ouqiang", "a-x")).partitions == 1


async def put_topic(server: Server, namespace: str, wanted: dict[str, int]) -> Answer:
    wish = TokenSpec("some", (Right.MANAGE,), namespace, ("a-*",))
    token = (await server.app.engine.tokens.make(wish, EVERYTHING)).text
    return await ask(server.port, "PUT", "/v1/topics/a-x", wanted, token)


async def test_a_token_in_the_path_counts_exactly_where_the_route_takes_it(server: Server) -> None:
    wish = TokenSpec("everything", (Right.ADMIN,), None)
    token = (await server.app.engine.tokens.make(wish, EVERYTHING)).text
    [front] = server.app.fronts
    places = {name: route.token for route, _ in front.router.table() for name, _ in rights_of(route)}
    wrong: dict[str, int] = {}
    for name, one in server.declared.items():
        path, media, body = one.sample.written(TOPIC)
        head = f"{one.sample.method} /{token}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\n"
        client = await connect(server.port)
        answer = await client.ask(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        client.close()
        refused = TokenPlace.HEADER in places[name] and TokenPlace.PATH not in places[name]
        if (answer.status == 401) != refused or answer.status == 403:
            wrong[name] = answer.status
        assert token.split("_", 2)[2].encode() not in answer.body, name
    assert wrong == {}


def test_there_is_a_sample_of_every_route(server: Server) -> None:
    assert sorted(SAMPLES) == sorted(server.declared)
