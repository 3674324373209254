"""The user of the store that docs/security.md recommends: it can do all that Dueline needs, and little else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError

from dueline.worker.direct import DirectQueue

from ..kit.valkey import PrivateValkey

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The URL of a store for that user."""
    found = re.search(r"^ACL SETUSER dueline .*?(?=^```)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    with PrivateValkey() as valkey, closing(redis.Redis.from_url(valkey.url)) as admin:
        admin.execute_command(*found[0].replace(">PASSWORD", ">secret").split())
        yield f"{valkey.url}?username=dueline&password=secret"


async def test_it_can_do_the_whole_life_of_a_job(store: str) -> None:
    queue = DirectQueue(store)
    await queue.start()
    try:
        waiting = asyncio.create_task(queue.pull(["t"], wait_ms=10_000))  # woken by the send
        await queue.send("t", {"n": 1})
        [job] = await waiting
        assert job.topic == "t"
        await queue.ack([job])
        await queue.send("t", {"n": 2}, id="two", delay="1h")
        await queue.cancel("t", "two")
    finally:
        await queue.close()


@pytest.mark.parametrize(
    "words",
    [
        ("SET", "other:key", "x"),
        ("EVAL", "return redis.call('SET', 'other:key', 'x')", "0"),
        ("PUBLISH", "other", "x"),
        ("FLUSHALL",),
        ("CONFIG", "SET", "appendonly", "no"),
        ("KEYS", "*"),
        ("SHUTDOWN",),
        ("ACL", "LIST"),
    ],
)
def test_it_can_do_nothing_else(words: tuple[str, ...], store: str) -> None:
    with closing(redis.Redis.from_url(store)) as client, pytest.raises((NoPermissionError, redis.ResponseError)):
        client.execute_command(*words)
