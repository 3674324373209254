"""Starts the demo and stops it: server, receiver, jobs, workers, customers; and nothing is left afterwards."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from ..client import AsyncClient
from ..testing.server import PrivateServer
from .chart_history import write_chart_history
from .receiver import Receiver
from .shop import Customers, Shop
from .workers import workers

EVERY_S = 1.0
SETTINGS = {
    "DUELINE_PUSH__ALLOW": "127.0.0.1",
    "DUELINE_SERVER__UI_ENVIRONMENT": "demo",
    "DUELINE_SERVER__UI_COLOUR": "purple",
}


async def run(port: int | None, seed: int, still: bool, ready: Callable[[str], None]) -> None:
    """Run the demo until SIGINT or SIGTERM. `ready` gets the address of the server when the shop is open. `still`: no
    customers come, so that two pictures of it are alike. Raises NotStarted if the server does not start."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
    logging.getLogger("dueline.worker").setLevel(logging.CRITICAL)  # failures are part of the show
    async with AsyncExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="dueline-demo-", ignore_cleanup_errors=True))
        )
        receiver = Receiver()
        await receiver.start()
        stack.push_async_callback(receiver.stop)
        server = PrivateServer(folder / "data", port=port, env=SETTINGS)
        await asyncio.to_thread(server.start)
        stack.push_async_callback(asyncio.to_thread, server.stop)
        await write_chart_history(server.data, seed)
        shop = Shop(server.url, receiver.url, seed)
        await asyncio.to_thread(shop.fill)
        for worker in workers(server.url):
            await worker.start()
            stack.push_async_callback(worker.stop, "100ms")
        await asyncio.to_thread(shop.open)
        ready(server.url)
        if not still:
            customers = asyncio.ensure_future(_serve_customers(server.url, seed))
            stack.callback(customers.cancel)
        await ending.wait()


async def _serve_customers(url: str, seed: int) -> None:
    customers = Customers(seed)
    async with AsyncClient(url) as client:
        while True:
            for topic, jobs in customers.next():
                await client.send_many(topic, jobs)
            await asyncio.sleep(EVERY_S)
