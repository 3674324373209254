"""The pending jobs of a namespace: counted in the store, with what this process has sent since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dueline.engine.commands import Send
from dueline.engine.engine import Engine
from dueline.engine.errors import QuotaExceeded, StoreDown
from dueline.engine.job import BodyKind
from dueline.rights import EVERYTHING, Grant, Right, TokenLimits
from dueline.server.pending_jobs import PendingJobs
from dueline.store.memory import MemoryStore

TOKENS = {"two": TokenLimits(max_pending_jobs=2), "nine": TokenLimits(max_pending_jobs=9)}


class CountingEngine(Engine):
    """An engine that writes down how often its topics are read, and whose store can be away."""

    counts = 0
    is_away = False

    async def topics(self, *words: object) -> object:  # type: ignore[override]
        self.counts += 1
        if self.is_away:
            raise StoreDown
        return await super().topics(*words)  # type: ignore[arg-type]


def limited(max_jobs: int = 3, clock: Callable[[], float] = lambda: 0.0) -> tuple[CountingEngine, PendingJobs]:
    engine = CountingEngine(MemoryStore(lambda: 1_000_000))
    pending = PendingJobs(
        engine,
        lambda namespace: max_jobs if namespace == "n" else None,
        lambda namespace, most, grant: QuotaExceeded(f"{namespace} {most} {'' if grant is None else grant.token_id}"),
        clock,
    )
    engine.limit_sends(pending)
    return engine, pending


async def send(engine: Engine, *ids: str, namespace: str = "n", token: str = "") -> None:
    grant = Grant(frozenset({Right.SEND}), token_id=token, limits=TOKENS.get(token)) if token else EVERYTHING
    await engine.send_many(namespace, "t", [Send(id, b"1", BodyKind.JSON) for id in ids], grant)


async def test_the_first_send_counts_what_other_servers_have_stored() -> None:
    engine, pending = limited()
    await Engine(engine.store).send_many("n", "t", [Send(id, b"1", BodyKind.JSON) for id in "ab"])
    with pytest.raises(QuotaExceeded):
        await send(engine, "c", "d")
    await send(engine, "c")
    with pytest.raises(QuotaExceeded):
        await send(engine, "d")
    assert pending.in_use() == {"n": 3}
    assert engine.counts == 1  # the count is fresh for a second
    await send(engine, *"abcdefgh", namespace="m")


async def test_the_store_is_counted_every_second_when_half_is_used_and_every_five_seconds_before() -> None:
    now_s = 100.0
    engine, pending = limited(10, lambda: now_s)
    await send(engine, "0")
    counts: list[int] = []
    for number in range(1, 10):
        now_s += 1.01
        await send(engine, str(number))
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
        counts.append(engine.counts)
    # 2 to 5 jobs are at most half of the limit; the sixth is sent when the count is old anyway
    assert counts == [1, 1, 1, 1, 2, 3, 4, 5, 6]
    assert pending.in_use() == {"n": 10}


async def test_sends_at_the_same_moment_share_a_count_and_do_not_exceed_the_limit() -> None:
    engine, _ = limited()
    results = await asyncio.gather(*(send(engine, str(number)) for number in range(8)), return_exceptions=True)
    assert sum(isinstance(result, QuotaExceeded) for result in results) == 5
    assert engine.counts == 1


async def test_a_store_that_does_not_answer_refuses_nothing_here() -> None:
    engine, pending = limited()
    engine.is_away = True
    waiting = pending.admit("n", 1)
    assert waiting is not None
    await waiting
    await pending.stop()


async def test_a_token_sends_only_while_its_namespace_has_fewer_jobs_than_that() -> None:
    engine, pending = limited()
    await send(engine, "a", "b", namespace="m")  # nobody counts here yet
    with pytest.raises(QuotaExceeded, match=r"^m 2 two$"):
        await send(engine, "c", namespace="m", token="two")
    await send(engine, "c", namespace="m", token="other")
    await send(engine, *"defgh", namespace="m")  # counted without asking the store again, although it has no limit
    await send(engine, "i", namespace="m", token="nine")
    with pytest.raises(QuotaExceeded, match=r"^m 9 nine$"):
        await send(engine, "j", namespace="m", token="nine")
    assert pending.in_use() == {"m": 9}
    assert engine.counts == 1


async def test_the_smaller_limit_of_the_token_and_its_namespace_holds() -> None:
    engine, _ = limited()
    await send(engine, "a", "b", token="two")
    with pytest.raises(QuotaExceeded, match=r"^n 2 two$"):
        await send(engine, "c", token="two")
    with pytest.raises(QuotaExceeded, match=r"^n 3 $"):
        await send(engine, "c", "d", token="nine")
    await send(engine, "c", token="nine")
