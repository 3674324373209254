"""A listener of server-sent events, on a plain socket."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

WITHIN_S = 60.0


class Message(NamedTuple):
    id: str
    event: str
    data: dict[str, Any]


class Listener:
    """One stream. `head` is the answer's head; `next` waits for a message, `None` at the end of the stream."""

    def __init__(self, url: str, query: str = "", *, method: str = "GET", **headers: str) -> None:
        self._url = urlsplit(url)
        sent = {"Host": self._url.netloc, **{name.replace("_", "-"): text for name, text in headers.items()}}
        lines = [f"{method} /v1/events{query} HTTP/1.1", *(f"{name}: {text}" for name, text in sent.items())]
        self._request = ("\r\n".join(lines) + "\r\n\r\n").encode()
        self.head = ""
        self.last_id = ""
        self.comments = 0

    async def __aenter__(self) -> Listener:
        self.reader, self.writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        self.writer.write(self._request)
        self.head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), WITHIN_S)).decode()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()

    @property
    def status(self) -> int:
        return int(self.head.split(" ")[1])

    async def next(self) -> Message | None:
        while True:
            fields: dict[str, str] = {}
            while (line := (await asyncio.wait_for(self.reader.readline(), WITHIN_S)).decode()) not in ("", "\n"):
                name, _, text = line.rstrip("\n").partition(":")
                fields[name] = text.removeprefix(" ")
            if not line:
                return None
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                return Message(self.last_id, fields["event"], json.loads(fields["data"]))
            self.comments += 1

    async def job(self) -> Message:
        """The next message about a job."""
        while True:
            message = await self.next()
            assert message is not None, "the stream has ended"
            if message.event == "job":
                return message
