"""Lifespans for Starlette and FastAPI: workers, clients and a mounted server live as long as the application.

    worker, client, server = Worker(), AsyncClient(), MountedServer(data="./dueline-data")
    app = FastAPI(lifespan=lifespan(server, client, worker))
    app.mount("/queue", server)

This imports neither framework: a lifespan is a function of the application that returns an async context manager.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from .service import Part

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(*parts: Part, inner: Lifespan | None = None) -> Lifespan:
    """Start the parts in order before the first request, and end them in reverse order after the last.

    `inner`: the application's own lifespan, which runs inside this one. The value it yields is the application's
    state."""

    @asynccontextmanager
    async def whole(app: Any) -> AsyncGenerator[Any]:
        async with AsyncExitStack() as stack:
            for part in parts:
                await stack.enter_async_context(part)
            yield None if inner is None else await stack.enter_async_context(inner(app))

    return whole
