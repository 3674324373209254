"""Some clients flood a topic: they are refused, others are not."""

from __future__ import annotations

import asyncio
from typing import Any

from tools.faults.connection import Connection

from ..kit.tapped_store import TappedStore
from ..kit.valkey import PrivateValkey
from .broken_server import served


async def send(address: tuple[str, int], body_bytes: int) -> int:
    """One send by a client of its own; the status of the answer."""
    connection = Connection(*address)
    body = b'{"delay_ms":60000,"body":"' + b"x" * body_bytes + b'"}'
    answer = await connection.request("POST", "/v1/topics/t/jobs", body, timeout_s=30)
    connection.close()
    return answer.status


async def test_a_quiet_sender_is_not_refused_on_a_flooded_topic(private_valkey: PrivateValkey) -> None:
    store = TappedStore(private_valkey.url, prefix="flood")
    async with served(store) as address, asyncio.timeout(30):
        assert await send(address, 10) == 201
        through, gate = store.link.call, asyncio.Event()

        async def slow(key: str, *args: Any) -> Any:
            await gate.wait()
            return await through(key, *args)

        store.link.call = slow  # type: ignore[method-assign]
        try:
            floods = [asyncio.ensure_future(send(address, 250_000)) for _ in range(100)]
            await asyncio.wait(floods, return_when=asyncio.FIRST_COMPLETED)  # the first that is refused
            quiet = [asyncio.ensure_future(send(address, 100)) for _ in range(32)]
            refused, _ = await asyncio.wait(quiet, timeout=0.5)
            assert [one.result() for one in refused] == []
        finally:
            gate.set()
        assert await asyncio.gather(*quiet) == [201] * 32
        assert set(await asyncio.gather(*floods)) == {201, 429}
