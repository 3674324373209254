"""A node of a store, or a sentinel, that says exactly what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hiredis

MASTER = [b"master", 0, []]
Answer = Callable[..., Any]


class FakeNode:
    """A node. `answers[command]` makes the reply to it; `log` has what was asked, by connection."""

    def __init__(self) -> None:
        self.port = 0
        self.log: list[tuple[str, ...]] = []
        self.connections: list[asyncio.StreamWriter] = []
        self.role: Any = MASTER
        self.epoch = 1
        self.slots: list[list[Any]] = []
        self.silent = False
        self.answers: dict[str, Answer] = {}
        self._server: asyncio.Server | None = None
        self._asked = asyncio.Event()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self.connections:
            writer.close()
        self.connections.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        parser = hiredis.Reader()
        while data := await reader.read(65536):
            parser.feed(data)
            while (asked := parser.gets()) is not False:
                words = tuple(word.decode() for word in asked)
                self.log.append(words)
                self._asked.set()
                if not self.silent:
                    writer.write(packed(self._reply(words)))

    def _reply(self, words: tuple[str, ...]) -> Any:
        if words[0] in self.answers:
            return self.answers[words[0]](*words[1:])
        if words[0] == "ROLE":
            return self.role
        if words[:2] == ("CLUSTER", "INFO"):
            return f"cluster_state:ok\r\ncluster_current_epoch:{self.epoch}\r\n".encode()
        if words[:2] == ("CLUSTER", "SLOTS"):
            return self.slots
        return b"OK"

    async def next_command(self) -> None:
        self._asked.clear()
        await self._asked.wait()

    def asked(self, command: str) -> int:
        return sum(words[0] == command for words in self.log)


def packed(reply: Any) -> bytes:
    if isinstance(reply, Exception):
        return b"-%b\r\n" % str(reply).encode()
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, list):
        return b"*%d\r\n%b" % (len(reply), b"".join(map(packed, reply)))
    return b"$-1\r\n" if reply is None else b"$%d\r\n%b\r\n" % (len(reply), reply)
