"""A connection that is found broken at the moment of writing is a lost connection, not a surprise."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop

from dueline.store.valkey.link import Link, LinkLost
from tests.kit.async_tests import LoopFactory


@pytest.fixture
def loop_factory() -> LoopFactory:
    """The loop that `dueline serve` uses."""
    return uvloop.new_event_loop


@pytest.mark.parametrize("how", ["closed under it", "gone"])
async def test_a_write_on_a_dead_connection_loses_the_link_and_the_next_call_has_a_new_one(
    tmp_path: Path, how: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            writer.write(b"+OK\r\n")

    server = await asyncio.start_unix_server(answer, tmp_path / "s")
    link = Link(f"unix://{tmp_path / 's'}?lib_name=&lib_version=")
    await link.start()
    found: list[object] = [await link.call("", "PING")]
    assert link._only is not None
    connection = (await link._only.connected())._connection
    if how == "gone":
        await connection.disconnect(nowait=True)
    else:
        connection._writer.transport.abort()  # the link hears of it in a later turn of the loop
    with pytest.raises(LinkLost):
        await link.call("", "PING")
    found.append(await link.call("", "PING"))
    await link.stop()
    server.close()
    assert found == [b"OK", b"OK"]
