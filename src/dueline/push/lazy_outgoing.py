"""`Outgoing`, imported only when it is needed.

The HTTP client is a third of what a server imports before it can answer, and only pushed jobs need it. So a thread
imports it as soon as a topic has a push target, while the server keeps serving; the first call waits for the import to
finish. A server without push targets never imports it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .call import STOPPING, Call, CallFailed, Response
from .egress import Egress

if TYPE_CHECKING:
    from .outgoing import Outgoing


class LazyOutgoing:
    """Takes the arguments of Outgoing."""

    def __init__(self, egress: Egress, **words: Any) -> None:
        self._egress = egress
        self._words = words
        self._loading: asyncio.Task[Outgoing] | None = None
        self._stopped = False

    def soon(self) -> None:
        """Start the import now, because calls may follow."""
        if self._loading is None and not self._stopped:
            self._loading = asyncio.get_running_loop().create_task(self._load())

    async def stop(self) -> None:
        """Fail the calls in progress. Waits for a running import, because a thread cannot be stopped."""
        self._stopped = True
        if self._loading is not None:
            await (await self._loading).stop()

    async def call(self, call: Call) -> Response:
        self.soon()
        if self._loading is None or self._stopped:
            raise CallFailed("connect", STOPPING)
        outgoing = self._loading.result() if self._loading.done() else await asyncio.shield(self._loading)
        return await outgoing.call(call)

    async def _load(self) -> Outgoing:
        outgoing = await asyncio.to_thread(_made, self._egress, self._words)
        await outgoing.start()
        return outgoing


def _made(egress: Egress, words: dict[str, Any]) -> Outgoing:
    from .outgoing import Outgoing

    return Outgoing(egress, **words)
