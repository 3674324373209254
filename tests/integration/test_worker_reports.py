"""Workers report themselves, over HTTP and directly on a store; a queue that refuses changes nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dueline import AsyncClient
from dueline.worker import Worker
from tests.kit.waiting import until

from .served import served


@pytest.mark.parametrize("kind", ["server", "store"])
async def test_a_worker_is_listed_with_what_it_runs_and_then_as_stopped(tmp_path: Path, kind: str) -> None:
    with served(tmp_path / "data") as url:
        worker = Worker(url if kind == "server" else f"embedded:{tmp_path / 'data'}", concurrency=7, name="shop")

        @worker.handles("orders")
        async def close(order: int) -> None: ...

        async with AsyncClient(url) as client:
            async with worker:
                [one] = await until(client.workers, lambda found: len(found) == 1)
                assert (one.pid, one.topics, one.concurrency, one.stopped) == (os.getpid(), ("orders",), 7, False)
                assert one.name.startswith("shop:")
                assert one.running == ()
            [one] = await client.workers()
            assert one.stopped
    assert asyncio.all_tasks() == {asyncio.current_task()}
