"""A table of names instead of a name server, a recorder instead of sockets, and servers that say what a test wants."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from dueline.push.egress import Egress
from dueline.push.outgoing_calls import Call, CallFailed, OutgoingCalls, Response, plain_socket

EVERYTHING = ("0.0.0.0/0", "::/0")

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def unguarded() -> Egress:
    """The guard taken out."""
    return Egress(EVERYTHING, deny_names=())


class Table:
    """Names and their addresses. A list of lists: what the first look-up answers, the second, ...; the last repeats."""

    def __init__(self, names: Mapping[str, Sequence[str] | Sequence[Sequence[str]]] = {}) -> None:
        self.names = dict(names)
        self.asked: list[str] = []

    async def addresses(self, host: str) -> Sequence[str]:
        said = self.asked.count(host)
        self.asked.append(host)
        answers = self.names.get(host, [])
        if answers and not isinstance(answers[0], str):
            answers = answers[min(said, len(answers) - 1)]
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "stub: no such name")
        return [str(answer) for answer in answers]

    async def stop(self) -> None: ...


class Recorder:
    """Notes every socket that is asked for and makes none, except for the ports of the test's own servers."""

    def __init__(self, own_ports: Sequence[int] = ()) -> None:
        self.own_ports = own_ports
        self.sockets: list[tuple[str, int]] = []

    def __call__(self, info: tuple[Any, ...]) -> socket.socket:
        address, port = info[4][:2]
        if port in self.own_ports and address == "127.0.0.1":
            return plain_socket(info)
        self.sockets.append((address, port))
        raise ConnectionRefusedError("stub: recorded, not connected")


@cache
def system_tls() -> ssl.SSLContext:
    """What OutgoingCalls makes for itself, made once, because reading the system's authorities takes long."""
    return ssl.create_default_context()


@asynccontextmanager
async def calling(egress: Egress, names: Table | None = None, **options: Any) -> AsyncIterator[OutgoingCalls]:
    outgoing = OutgoingCalls(egress, names or Table(), **{"tls": system_tls(), **options})
    await outgoing.start()
    try:
        yield outgoing
    finally:
        await outgoing.stop()


@asynccontextmanager
async def serving(talk: Talk, **options: Any) -> AsyncIterator[int]:
    """A server on a loopback port that talks as configured; it ends with the test."""
    tasks: set[asyncio.Task[Any]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def saying(*pieces: bytes) -> Talk:
    """Read a request's head, say these bytes, close."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return talk


async def failing(outgoing: OutgoingCalls, call: Call) -> CallFailed:
    """The failure of a call that must fail."""
    try:
        answer: Response = await outgoing.call(call)
    except CallFailed as failed:
        return failed
    raise AssertionError(f"it was answered: {answer}")
