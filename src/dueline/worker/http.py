"""A queue over HTTP. `AsyncClient` makes the calls, `WaitingPulls` the waiting pulls."""

from __future__ import annotations

from ..api.answers import LeasedJobs
from ..client.async_client import AsyncClient
from ..client.calls import Call
from ..client.client import DEFAULT_TIMEOUT_S
from ..client.patience import Patience
from .client_queue import ClientQueue
from .waiting_pulls import waiting_pulls


class HttpQueue(ClientQueue):
    """One namespace of the server at `url`, or of several servers of one store."""

    def __init__(
        self,
        url: str,
        namespace: str | None = None,
        token: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        patience: Patience = Patience(),
    ) -> None:
        client = AsyncClient(url, namespace, token, timeout_s, patience)
        super().__init__(client, client.url, client.servers.namespace)
        self._pulls = waiting_pulls(client, timeout_s, patience)

    async def close(self) -> None:
        self._pulls.close()
        await super().close()

    async def _pulled(self, call: Call[LeasedJobs]) -> LeasedJobs:
        return await self._pulls.pull(call)
