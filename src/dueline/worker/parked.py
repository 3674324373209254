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
from ..client.calls import Answer, Call, read_answer
from ..client.client import connect_error, reason_of
from ..client.errors import DuelineApiError, ServerFault, UnknownOutcome, Unreachable
from ..client.http1 import BadAnswer, Response, ResponseReader
from ..client.patience import Patience
from ..client.retrying import retried
from .log import said_if_slow

LEAVE_S = 2.0  # how long the server may take to end a cancelled pull
_READ_BYTES = 65_536

GiveBack = Callable[[Sequence[LeasedJob]], Awaitable[object]]


class ParkedPulls:
    """The waiting pulls of one client. Each has its own connection, which is kept for the next pull."""

    def __init__(self, address: Address, timeout_s: float, patience: Patience, give_back: GiveBack) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._patience = patience
        self._give_back = give_back
        self._idle: list[_Line] = []

    async def pull(self, call: Call[LeasedJobs]) -> Sequence[LeasedJob]:
        """Pull, retrying where that is safe. Raises DuelineApiError."""
        return (await retried(self._once, call, self._patience, self._timeout_s)).value.jobs

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def _once(self, call: Call[LeasedJobs], timeout_s: float) -> Answer[LeasedJobs]:
        response = await self._try(call, timeout_s)
        return read_answer(call, response.status, response.headers, response.body)

    async def _try(self, call: Call[LeasedJobs], timeout_s: float) -> Response:
        url = self._address.url
        line: _Line | None = None
        try:
            async with asyncio.timeout(timeout_s):
                line = self._take() or await self._connected()
                response = await line.exchange(self._address.request(call))
        except TimeoutError as late:
            if line is None:
                raise Unreachable("unreachable", f"{url} was not reached within {timeout_s:g} s") from late
            line.close()
            raise UnknownOutcome("unknown_outcome", f"{url} did not answer within {timeout_s:g} s") from late
        except asyncio.CancelledError:
            if line is not None:
                await asyncio.shield(self._leave(call, line))
            raise
        except OSError as lost:
            assert line is not None
            line.close()
            message = f"the connection to {url} broke before the answer came: {reason_of(lost)}"
            raise UnknownOutcome("unknown_outcome", message) from lost
        except BadAnswer as wrong:
            assert line is not None
            line.close()
            raise ServerFault("bad_answer", f"{wrong}. Is {url} the address of a Dueline server?") from wrong
        if response.reusable:
            self._idle.append(line)
        else:
            line.close()
        return response

    async def _leave(self, call: Call[LeasedJobs], line: _Line) -> None:
        """Cancel the pull on the server, and give back the jobs that still arrive."""
        try:
            response = await line.leave()
            if response is not None:
                jobs = read_answer(call, response.status, response.headers, response.body).value.jobs
                if jobs:
                    await self._give_back(jobs)
        except (OSError, BadAnswer, DuelineApiError):
            pass  # the leases will expire
        finally:
            line.close()

    def _take(self) -> _Line | None:
        while self._idle:
            line = self._idle.pop()
            if line.usable():
                return line
            line.close()
        return None

    async def _connected(self) -> _Line:
        address = self._address
        try:
            with said_if_slow(f"{address.url} has not accepted a connection yet: still trying"):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, ssl=True if address.secure else None
                )
        except TimeoutError:
            raise
        except OSError as refused:
            raise connect_error(address.url, refused) from refused
        return _Line(reader, writer)


class _Line:
    """One connection with at most one outstanding request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = ResponseReader()

    def usable(self) -> bool:
        return not (self._writer.is_closing() or self._reader.at_eof())

    async def exchange(self, request: bytes) -> Response:
        """Raises OSError and BadAnswer."""
        self._answer = ResponseReader()
        self._writer.write(request)
        response = await self._read()
        if response is None:
            raise ConnectionResetError("the server closed the connection")
        return response

    async def leave(self) -> Response | None:
        """Close the writing side and return the answer, if one still comes."""
        if not self._writer.can_write_eof():  # TLS has no half-close, so the whole connection is closed
            return None
        self._writer.write_eof()
        try:
            async with asyncio.timeout(LEAVE_S):
                return await self._read()
        except TimeoutError:
            return None

    async def _read(self) -> Response | None:
        while True:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                return self._answer.end()
            response = self._answer.feed(data)
            if response is not None:
                return response

    def close(self) -> None:
        self._writer.transport.abort()


def parked_pulls(client: AsyncClient, address: Address, timeout_s: float, patience: Patience) -> ParkedPulls:
    """Waiting pulls; `client` gives back the jobs of cancelled ones."""
    return ParkedPulls(address, timeout_s, patience, lambda jobs: client.release_many(jobs, delay=0, count=False))
