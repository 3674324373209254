"""The workers of one server tell each other their figures, so that one scrape shows the sum, whoever answers it.

Every worker listens on a socket of its own in a private folder and writes its families to whoever connects. The one
that is scraped asks all others; one that does not answer within a second is left out (it is ending or starting).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from .families import Family

ANSWER_S = 1.0
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Family]).decode


class Siblings:
    """`folder` None: there are none. `snapshot` makes this process's own families."""

    def __init__(self, folder: Path | None, index: int, snapshot: Callable[[], list[Family]]) -> None:
        self._folder = folder
        self._own = f"worker-{index}.sock"
        self._snapshot = snapshot
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if self._folder is None or self._server is not None:
            return
        path = self._folder / self._own
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._answer, path)
        path.chmod(0o600)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None and self._folder is not None:
            server.close()
            (self._folder / self._own).unlink(missing_ok=True)

    async def others(self) -> list[list[Family]]:
        """The families of every other worker that answers."""
        if self._folder is None:
            return []
        paths = [path for path in sorted(self._folder.glob("worker-*.sock")) if path.name != self._own]
        answers = await asyncio.gather(*(self._ask(path) for path in paths))
        return [families for families in answers if families is not None]

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_encode(self._snapshot()))
        writer.close()

    async def _ask(self, path: Path) -> list[Family] | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    return _decode(await reader.read())
                finally:
                    writer.close()
        except (OSError, TimeoutError, msgspec.DecodeError):
            return None
