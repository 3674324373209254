"""Dialects on one namespace: a job sent in one can be consumed in every other, and each sees it in its own words.

The namespace is then a namespace_ids one: ids are unique over all topics, also for the native API and camellia.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Protocol

import pytest

from .camellia.kit import Camellia
from .kit import Client, Runner, RunningServer, serve
from .ouqiang.kit import Ouqiang
from .youzan.kit import Youzan

WAIT_MS = 20_000
OPTIONS = {f"DUELINE_DIALECTS__{name}__NAMESPACE": "default" for name in ("CAMELLIA", "OUQIANG", "YOUZAN")}
TEXT = '{"订单": "<1> & 2"}'


class Speaker(Protocol):
    """One dialect. `seen`: its view of a job of its own; the states are the native words, None: it knows none."""

    def __init__(self, served: RunningServer) -> None: ...

    async def send(self, topic: str, id: str, text: str) -> None: ...
    async def pull(self, topic: str) -> tuple[str, str]: ...
    async def end(self, topic: str, id: str) -> None: ...
    async def withdraw(self, topic: str, id: str) -> None: ...
    async def seen(self, topic: str, id: str) -> str | None: ...


class NativeSpeaker:
    def __init__(self, served: RunningServer) -> None:
        self.client: Client = served.client()
        self.lease = ""

    async def send(self, topic: str, id: str, text: str) -> None:
        """`text` is JSON, and native bodies are JSON: the others show it as it was written."""
        await self.ask("POST", f"/v1/topics/{topic}/jobs", f'{{"id": "{id}", "body": {text}}}'.encode())

    async def pull(self, topic: str) -> tuple[str, str]:
        [job] = (await self.ask("POST", f"/v1/topics/{topic}/pull", {"wait_ms": WAIT_MS}))["jobs"]
        self.lease = job["lease"]
        return job["id"], job["body"]

    async def end(self, topic: str, id: str) -> None:
        done = await self.ask("POST", f"/v1/topics/{topic}/ack", {"jobs": [{"id": id, "lease": self.lease}]})
        assert done == {"results": [{"id": id, "result": "acked"}]}

    async def withdraw(self, topic: str, id: str) -> None:
        assert await self.ask("DELETE", f"/v1/topics/{topic}/jobs/{id}") == {"id": id, "result": "cancelled"}

    async def seen(self, topic: str, id: str) -> str | None:
        return (await self.ask("GET", f"/v1/topics/{topic}/jobs/{id}", missing=True) or {"state": None})["state"]

    async def ask(self, method: str, path: str, fields: Any = b"", *, missing: bool = False) -> Any:
        body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        answer = await self.client.ask(method, path, body, {"Content-Type": "application/json"})
        if missing and answer.status == 404:
            return None
        assert answer.status in (200, 201), answer
        return answer.json()


class CamelliaSpeaker:
    STATUS = {1: "scheduled", 2: "ready", 3: "leased", 4: "done", 7: "cancelled", None: None}  # noqa: RUF012

    def __init__(self, served: RunningServer) -> None:
        self.q = Camellia(served)

    async def send(self, topic: str, id: str, text: str) -> None:
        await self.q.send(topic, text, msgId=id)

    async def pull(self, topic: str) -> tuple[str, str]:
        [msg] = await self.q.poll(topic, WAIT_MS)
        return msg["msgId"], msg["msg"]

    async def end(self, topic: str, id: str) -> None:
        await self.q.ack(topic, id)

    async def withdraw(self, topic: str, id: str) -> None:
        assert await self.q.delete(topic, id) == (200, {"code": 200, "msg": "success"})

    async def seen(self, topic: str, id: str) -> str | None:
        return self.STATUS[await self.q.status(topic, id)]


class OuqiangSpeaker:
    def __init__(self, served: RunningServer) -> None:
        self.q = Ouqiang(served, namespace="default")

    async def send(self, topic: str, id: str, text: str) -> None:
        await self.q.push(topic, id, 1, 60, text)

    async def pull(self, topic: str) -> tuple[str, str]:
        found = await self.q.pop(topic)
        assert found is not None
        return found

    async def end(self, topic: str, id: str) -> None:
        await self.q.finish(id)

    async def withdraw(self, topic: str, id: str) -> None:
        assert (await self.q.ask("delete", id=id))["code"] == 0

    async def seen(self, topic: str, id: str) -> str | None:
        return None if await self.q.get(id) is None else (await self.q.job(topic, id) or {})["state"]


class YouzanSpeaker:
    def __init__(self, served: RunningServer) -> None:
        self.q = Youzan(served)
        self.native = NativeSpeaker(served)

    async def send(self, topic: str, id: str, text: str) -> None:
        await self.q.add(topic, id, 0, 60, text)

    async def pull(self, topic: str) -> tuple[str, str]:
        found = await self.q.pop(topic, WAIT_MS / 1000)
        assert found is not None
        return found

    async def end(self, topic: str, id: str) -> None:
        await self.q.finish(id)

    async def withdraw(self, topic: str, id: str) -> None:
        assert (await self.q.ask(command="delete", id=id))["success"] is True

    async def seen(self, topic: str, id: str) -> str | None:
        return await self.native.seen(topic, id)  # it has no word for it


SPEAKERS: dict[str, type[Speaker]] = {
    "native": NativeSpeaker,
    "camellia": CamelliaSpeaker,
    "ouqiang": OuqiangSpeaker,
    "youzan": YouzanSpeaker,
}
KEEPS_ENDED = {"native", "camellia"}
PAIRS = list(itertools.permutations(SPEAKERS, 2))


async def consumed_in_another(sender: Speaker, consumer: Speaker, topic: str, keeps: bool) -> None:
    id = f"{topic}-consumed"
    await sender.send(topic, id, TEXT)
    assert await consumer.pull(topic) == (id, TEXT)
    assert await sender.seen(topic, id) == "leased"
    await consumer.end(topic, id)
    assert await sender.seen(topic, id) == ("done" if keeps else None)


async def withdrawn_in_another(sender: Speaker, consumer: Speaker, topic: str, keeps: bool) -> None:
    id = f"{topic}-withdrawn"
    await sender.send(topic, id, TEXT)
    await consumer.withdraw(topic, id)
    assert await sender.seen(topic, id) == ("cancelled" if keeps else None)


@pytest.fixture(scope="module")
def shared(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    served = runner.run(serve(tmp_path_factory.mktemp("pairs"), OPTIONS))
    yield served
    runner.run(served.stop())


@pytest.fixture(scope="module")
def lives(runner: Runner, shared: RunningServer) -> dict[tuple[str, str], Future[None]]:
    """Every pair, all at the same time, each on a topic of its own."""

    async def life(one: str, other: str) -> None:
        sender, consumer, keeps = SPEAKERS[one](shared), SPEAKERS[other](shared), one in KEEPS_ENDED
        await consumed_in_another(sender, consumer, f"{one}-to-{other}", keeps)
        await withdrawn_in_another(sender, consumer, f"{one}-to-{other}", keeps)

    return {pair: runner.submit(life(*pair)) for pair in PAIRS}


@pytest.mark.parametrize(("sender", "consumer"), PAIRS)
def test_a_job_sent_in_one_dialect_is_consumed_and_withdrawn_in_another(
    lives: dict[tuple[str, str], Future[None]], sender: str, consumer: str
) -> None:
    lives[sender, consumer].result()


@pytest.mark.parametrize("consumer", ["camellia", "ouqiang", "youzan"])
async def test_a_string_dialect_shows_json_as_its_text_and_bytes_as_base64(
    shared: RunningServer, consumer: str
) -> None:
    native, other, topic = NativeSpeaker(shared), SPEAKERS[consumer](shared), f"kinds-{consumer}"
    for number, (given, shown) in enumerate(
        (
            ('"body": {"a": [1.0, "é"]}', '{"a": [1.0, "é"]}'),
            ('"body": "plain"', '"plain"'),
            ('"body_base64": "AP8="', base64.b64encode(b"\0\xff").decode()),
        )
    ):
        id = f"{topic}-{number}"
        await native.ask("POST", f"/v1/topics/{topic}/jobs", f'{{"id": "{id}", {given}}}'.encode())
        assert await other.pull(topic) == (id, shown)
        await other.end(topic, id)


@pytest.mark.parametrize("consumer", ["camellia", "ouqiang", "youzan"])
async def test_a_string_dialect_shows_the_items_of_a_group_as_one_json_array(
    shared: RunningServer, consumer: str
) -> None:
    native, other, topic = NativeSpeaker(shared), SPEAKERS[consumer](shared), f"groups-{consumer}"
    merge = '"merge": {"key": "k", "max_items": 3}, "delay": "1h"'
    for given in ('"body": {"a": [1.0, "é"]}', '"body": "plain"', '"body_base64": "AP8="'):
        sent = await native.ask("POST", f"/v1/topics/{topic}/jobs", f"{{{merge}, {given}}}".encode())
    assert await other.pull(topic) == (sent["id"], '[{"a": [1.0, "é"]},"plain",{"body_base64":"AP8="}]')
    await other.end(topic, sent["id"])
    assert await native.seen(topic, sent["id"]) == "done"


async def test_a_native_pull_shows_a_text_as_a_json_string(shared: RunningServer) -> None:
    native, topic = NativeSpeaker(shared), "texts"
    for name in ("camellia", "ouqiang", "youzan"):
        await SPEAKERS[name](shared).send(topic, f"text-{name}", TEXT)
        assert await native.pull(topic) == (f"text-{name}", TEXT)


@pytest.mark.parametrize(("sender", "max_attempts"), [("camellia", 11), ("ouqiang", None), ("youzan", None)])
async def test_a_job_of_a_dialect_without_a_retry_policy_is_tried_again_at_once_whatever_its_topic_says(
    shared: RunningServer, sender: str, max_attempts: int | None
) -> None:
    native, topic = NativeSpeaker(shared), f"again-{sender}"
    await native.ask("PUT", f"/v1/topics/{topic}", {"retry": {"ladder": ["1h"]}, "max_attempts": 2})
    await SPEAKERS[sender](shared).send(topic, topic, TEXT)
    await native.pull(topic)
    job = await native.ask("GET", f"/v1/topics/{topic}/jobs/{topic}")
    assert (job["retry"], job["max_attempts"]) == ("none", max_attempts)
    await native.ask("POST", f"/v1/topics/{topic}/release", {"jobs": [{"id": topic, "lease": native.lease}]})
    assert await native.pull(topic) == (topic, TEXT)


async def test_ids_of_the_shared_namespace_are_unique_over_all_topics(shared: RunningServer) -> None:
    native, ouqiang = NativeSpeaker(shared), OuqiangSpeaker(shared)
    await native.send("here", "namespace_ids", TEXT)
    taken = await native.client.ask(
        "POST", "/v1/topics/there/jobs", b'{"id":"namespace_ids","body":1}', {"Content-Type": "application/json"}
    )
    assert (taken.status, taken.json()["error"]["code"]) == (409, "id_exists")
    await ouqiang.send("there", "namespace_ids", "moved")
    assert (await native.seen("here", "namespace_ids"), await native.seen("there", "namespace_ids")) == (
        None,
        "scheduled",
    )
