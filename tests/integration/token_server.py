"""A server that checks tokens, whose belief in them never ends: `python -m tests.integration.token_server STORE_URL`.

The control of test_revocation: without the rule of two seconds, a server that was stopped must accept a revoked token.
Prints its address like `dueline serve`, and runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys

import uvloop

from dueline.config.settings import Server, Settings, Store
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App
from dueline.server.listeners import opened
from dueline.telemetry import logs


async def serve(url: str) -> None:
    settings = Settings(server=Server(listen="127.0.0.1:0", auth="tokens"), store=Store(url=url))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with opened(settings) as listeners:
        app = App(settings, ExternalStore(url), token_lease_s=math.inf)
        await app.listen(listeners)
        await app.open()
        print(f"ready on http://127.0.0.1:{listeners[0].getsockname()[1]}", flush=True)
        await stop.wait()
        await app.stop(stop)


if __name__ == "__main__":
    logs.configure()
    uvloop.run(serve(sys.argv[1]))
