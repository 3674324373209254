"""A waiting pull over HTTP that can be cancelled without wasting an attempt.

Closing the connection could lose an answer that is already on its way: its jobs would stay leased until the lease
expires, and would lose an attempt. A cancelled pull therefore closes only the writing side of its connection. The
server then ends a waiting pull. If it has already answered, the answer still arrives and its jobs are given back
uncounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ..api.answers import LeasedJob, LeasedJobs
from ..client.address import Address
from ..client.async_client import AsyncClient
from ..client.async_connection import AsyncConnection, reach
from ..client.calls import Answer, Call, read_answer
from ..client.connection import exchange_error
from ..client.errors import DuelineApiError
from ..client.idle_connections import IdleConnections
from ..client.patience import Patience
from ..client.retrying import retried
from ..client.servers import Servers
from ..http1.messages import BadResponse, Response
from .log import warn_if_slow

LEAVE_S = 2.0  # how long the server may take to end a cancelled pull

GiveBack = Callable[[Sequence[LeasedJob]], Awaitable[object]]


class WaitingPulls:
    """The waiting pulls of one client. Each has its own connection, which is kept for the next pull."""

    def __init__(self, servers: Servers, timeout_s: float, patience: Patience, give_back: GiveBack) -> None:
        self._servers = servers
        self._timeout_s = timeout_s
        self._patience = patience
        self._give_back = give_back
        self._idle: IdleConnections[AsyncConnection] = IdleConnections()

    async def pull(self, call: Call[LeasedJobs]) -> LeasedJobs:
        """Pull, retrying where that is safe. Raises DuelineApiError."""
        answer = await retried(self._once, call, self._patience, self._timeout_s, servers=self._servers.count)
        return answer.value

    def close(self) -> None:
        self._idle.close()

    async def _once(self, call: Call[LeasedJobs], timeout_s: float) -> Answer[LeasedJobs]:
        clock = asyncio.get_running_loop().time
        address = self._servers.current(clock())
        try:
            response = await self._try(address, call, timeout_s)
            return read_answer(call, response.status, response.headers, response.body)
        except DuelineApiError as error:
            self._servers.failed(address, error, clock())
            raise

    async def _try(self, address: Address, call: Call[LeasedJobs], timeout_s: float) -> Response:
        connection: AsyncConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = self._idle.take(address) or await self._connected(address, timeout_s)
                response = await connection.exchange(address.request(call))
        except asyncio.CancelledError:
            if connection is not None:
                await asyncio.shield(self._leave(call, connection))
            raise
        except (OSError, BadResponse) as error:
            if connection is not None:
                connection.close()
            raise exchange_error(address.url, error, timeout_s, connection is not None) from error
        if response.reusable:
            self._idle.give(address, connection)
        else:
            connection.close()
        return response

    async def _leave(self, call: Call[LeasedJobs], connection: AsyncConnection) -> None:
        """Cancel the pull on the server, and give back the jobs that still arrive."""
        try:
            response = await connection.leave(LEAVE_S)
            if response is not None:
                jobs = read_answer(call, response.status, response.headers, response.body).value.jobs
                if jobs:
                    await self._give_back(jobs)
        except (OSError, BadResponse, DuelineApiError):
            pass  # the leases will expire
        finally:
            connection.close()

    async def _connected(self, address: Address, timeout_s: float) -> AsyncConnection:
        with warn_if_slow(f"{address.url} has not accepted a connection yet: still trying"):
            return await reach(address, self._servers.connect_s(timeout_s))


def waiting_pulls(client: AsyncClient, timeout_s: float, patience: Patience) -> WaitingPulls:
    """Waiting pulls at the client's servers; `client` gives back the jobs of cancelled ones."""

    async def give_back(jobs: Sequence[LeasedJob]) -> None:
        await client.release_many(jobs, delay=0, count=False)

    return WaitingPulls(client.servers, timeout_s, patience, give_back)
