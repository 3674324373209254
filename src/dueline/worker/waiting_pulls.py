"""A waiting pull over HTTP that can be cancelled without wasting an attempt.

Closing the connection could lose an answer that is already on its way: its jobs would stay leased until the lease
expires, and would lose an attempt. A cancelled pull therefore closes only the writing side of its connection. The
server then ends a waiting pull. If it has already answered, the answer still arrives and its jobs are given back
uncounted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from ..api.answers import LeasedJob, LeasedJobs
from ..client.address import Address
from ..client.async_client import AsyncClient
from ..client.async_connection import AsyncConnection, connect
from ..client.calls import Answer, Call, read_answer
from ..client.connection import connect_error, exchange_error, secured
from ..client.errors import DuelineApiError
from ..client.http1 import BadAnswer, Response
from ..client.patience import Patience
from ..client.retrying import retried
from .log import warn_if_slow

LEAVE_S = 2.0  # how long the server may take to end a cancelled pull

GiveBack = Callable[[Sequence[LeasedJob]], Awaitable[object]]


class WaitingPulls:
    """The waiting pulls of one client. Each has its own connection, which is kept for the next pull."""

    def __init__(self, address: Address, timeout_s: float, patience: Patience, give_back: GiveBack) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._patience = patience
        self._give_back = give_back
        self._idle: list[AsyncConnection] = []

    async def pull(self, call: Call[LeasedJobs]) -> Sequence[LeasedJob]:
        """Pull, retrying where that is safe. Raises DuelineApiError."""
        return (await retried(self._once, call, self._patience, self._timeout_s)).value.jobs

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    async def _once(self, call: Call[LeasedJobs], timeout_s: float) -> Answer[LeasedJobs]:
        response = await self._try(call, timeout_s)
        return read_answer(call, response.status, response.headers, response.body)

    async def _try(self, call: Call[LeasedJobs], timeout_s: float) -> Response:
        url = self._address.url
        connection: AsyncConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = self._take() or await self._connected()
                response = await connection.exchange(self._address.request(call))
        except asyncio.CancelledError:
            if connection is not None:
                await asyncio.shield(self._leave(call, connection))
            raise
        except (OSError, BadAnswer) as error:
            if connection is not None:
                connection.abort()
            raise exchange_error(url, error, timeout_s, connection is not None) from error
        if response.reusable:
            connection.idle_since_s = time.monotonic()
            self._idle.append(connection)
        else:
            connection.abort()
        return response

    async def _leave(self, call: Call[LeasedJobs], connection: AsyncConnection) -> None:
        """Cancel the pull on the server, and give back the jobs that still arrive."""
        try:
            response = await connection.leave(LEAVE_S)
            if response is not None:
                jobs = read_answer(call, response.status, response.headers, response.body).value.jobs
                if jobs:
                    await self._give_back(jobs)
        except (OSError, BadAnswer, DuelineApiError):
            pass  # the leases will expire
        finally:
            connection.abort()

    def _take(self) -> AsyncConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.abort()
        return None

    async def _connected(self) -> AsyncConnection:
        address = self._address
        try:
            with warn_if_slow(f"{address.url} has not accepted a connection yet: still trying"):
                return await connect(address.host, address.port, secured(None) if address.secure else None)
        except TimeoutError:
            raise
        except OSError as refused:
            raise connect_error(address.url, refused) from refused


def waiting_pulls(client: AsyncClient, address: Address, timeout_s: float, patience: Patience) -> WaitingPulls:
    """Waiting pulls; `client` gives back the jobs of cancelled ones."""
    return WaitingPulls(address, timeout_s, patience, lambda jobs: client.release_many(jobs, delay=0, count=False))
