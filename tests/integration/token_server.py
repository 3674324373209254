"""A server that goes on accepting revoked tokens: `python -m tests.integration.token_server STORE_URL`.

The control of test_revocation: the test must see that it accepts them. It keeps every token that it ever loaded, so it
does not matter whether it hears of the revocation before or after the requests.
Prints its address like `dueline serve`, and runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys

import uvloop

from dueline.config.settings import Server, Settings, Store
from dueline.engine.token_cache import TokenCache
from dueline.engine.tokens import Token
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App
from dueline.server.listeners import opened
from dueline.telemetry import logs


def keep_all(tokens: TokenCache) -> None:
    """Never drop a token."""
    ever: dict[str, Token] = {}

    def loaded() -> None:
        ever.update(tokens.tokens)
        tokens.tokens = dict(ever)

    tokens.changed = loaded


async def serve(url: str) -> None:
    settings = Settings(server=Server(listen="127.0.0.1:0", auth="tokens"), store=Store(url=url))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with opened(settings) as listeners:
        app = App(settings, ExternalStore(url), token_lease_s=math.inf)
        assert app.tokens is not None
        keep_all(app.tokens)
        await app.listen(listeners)
        await app.open()
        print(f"ready on http://127.0.0.1:{listeners[0].getsockname()[1]}", flush=True)
        await stop.wait()
        await app.stop(stop)


if __name__ == "__main__":
    logs.configure()
    uvloop.run(serve(sys.argv[1]))
