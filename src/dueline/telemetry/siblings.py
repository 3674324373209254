"""The workers of one server exchange their metrics, so that a scrape shows the sum, whichever worker answers it.

Every worker listens on a socket in a private folder and writes its samples to each connection. The worker that is
scraped asks all others. One that does not answer within a second is starting or stopping, and is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..metrics.metric import Samples

ANSWER_S = 1.0
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Samples]).decode


class Siblings:
    """`folder` None: there are no siblings. `snapshot` returns the samples of this process."""

    def __init__(self, folder: Path | None, index: int, snapshot: Callable[[], list[Samples]]) -> None:
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

    async def others(self) -> list[list[Samples]]:
        """The samples of every other worker that answers."""
        if self._folder is None:
            return []
        paths = [path for path in sorted(self._folder.glob("worker-*.sock")) if path.name != self._own]
        answers = await asyncio.gather(*(self._ask(path) for path in paths))
        return [samples for samples in answers if samples is not None]

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_encode(self._snapshot()))
        writer.close()

    async def _ask(self, path: Path) -> list[Samples] | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    return _decode(await reader.read())
                finally:
                    writer.close()
        except (OSError, TimeoutError, msgspec.DecodeError):
            return None
