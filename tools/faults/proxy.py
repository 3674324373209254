"""A proxy that breaks connections on purpose, between a client and a server on loopback or unix sockets.

    client ---> FaultProxy ---> server          `up` is client to server, `down` is the way back

Each direction has its own `Trouble` (latency, jitter, slicing, a bandwidth limit, a stall, a black hole). It may be
changed at any moment and applies from the next chunk of data. `sever` closes all connections at once; `refusing` closes
new ones.

A `Cut` is exact: it waits for a request that contains `marker`, then closes that connection after a given number of
bytes of the request or of its answer. With `after_bytes=0` on the answer, the request was carried out but its answer is
lost, which every idempotent operation must survive. A cut happens once.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from pathlib import Path

import msgspec

Address = Path | tuple[str, int]
_CHUNK_BYTES = 65_536
_STALL_LOOK_S = 0.005


class Trouble(msgspec.Struct):
    """What happens to data in one direction. The defaults do nothing."""

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    slice_bytes: int = 0  # 0 = chunks as they arrive
    rate_bytes_per_s: int = 0  # 0 = no limit
    stalled: bool = False  # data is kept back until this is over, as by a network that repeats lost packets
    black_hole: bool = False  # data is read and dropped; the connection stays open. Sever it before healing

    def heal(self) -> None:
        self.latency_ms = self.jitter_ms = 0.0
        self.slice_bytes = self.rate_bytes_per_s = 0
        self.stalled = self.black_hole = False


class Cut:
    """Close the connection that carries `marker`, after `after_bytes` of the request (`up`) or of its answer (`down`).

    `fired` is set when it happened. A marker that is split over two chunks is found too."""

    def __init__(self, marker: bytes, after_bytes: int, *, up: bool = False, reset: bool = False) -> None:
        self.marker = marker
        self.after_bytes = after_bytes
        self.up = up
        self.reset = reset
        self.fired = asyncio.Event()
        self.answered_bytes = 0  # on the marked connection since the marker, whether cut or not


class _Connection:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.cut: Cut | None = None  # set once the marker has passed
        self.tail = b""

    def close(self, reset: bool = False) -> None:
        for writer in (self.client, self.server):
            if reset:
                _reset_on_close(writer)
            writer.transport.abort() if reset else writer.close()


class FaultProxy:
    """Listens on `listen` (a free loopback port when None; see `address`) and forwards to `upstream`."""

    def __init__(self, upstream: Address, listen: Address | None = None, seed: int = 0) -> None:
        self.upstream = upstream
        self.address: Address = listen or ("127.0.0.1", 0)
        self.up = Trouble()
        self.down = Trouble()
        self.refusing = False
        self.connections = 0  # accepted so far
        self.cuts = 0
        self._cut: Cut | None = None
        self._random = random.Random(seed)
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if isinstance(self.address, Path):
            self._server = await asyncio.start_unix_server(self._serve, str(self.address))
        else:
            self._server = await asyncio.start_server(self._serve, *self.address)
            self.address = self._server.sockets[0].getsockname()[:2]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.sever()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def arm(self, cut: Cut) -> Cut:
        """Make `cut` the next one. It replaces a cut that has not happened."""
        self.disarm()
        self._cut = cut
        return cut

    def disarm(self) -> None:
        """Drop a cut that has not happened, even if its marker has passed."""
        self._cut = None
        for connection in self._open:
            connection.cut, connection.tail = None, b""

    def sever(self, *, reset: bool = False) -> int:
        """Close every connection now. Returns how many there were."""
        open_now = list(self._open)
        for connection in open_now:
            connection.close(reset)
        return len(open_now)

    def heal(self) -> None:
        """Forward everything again. Connections that were closed stay closed."""
        self.refusing = False
        self.disarm()
        self.up.heal()
        self.down.heal()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._connect(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            return
        self.connections += 1
        if isinstance(self.upstream, Path):
            up_reader, up_writer = await asyncio.open_unix_connection(str(self.upstream))
        else:
            up_reader, up_writer = await asyncio.open_connection(*self.upstream)
        connection = _Connection(writer, up_writer)
        self._open.add(connection)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(connection, reader, up_writer, up=True))
                pumps.create_task(self._pump(connection, up_reader, writer, up=False))
        finally:
            self._open.discard(connection)
            connection.close()

    async def _pump(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool
    ) -> None:
        """Copy one direction until it ends, then close the whole connection."""
        try:
            while data := await reader.read(_CHUNK_BYTES):
                trouble = self.up if up else self.down
                while trouble.stalled:  # noqa: ASYNC110
                    await asyncio.sleep(_STALL_LOOK_S)
                if trouble.black_hole:
                    continue
                allowed = self._look(connection, data, up=up)
                await self._write(writer, data if allowed is None else data[:allowed], trouble)
                if allowed is not None:
                    cut = connection.cut
                    assert cut is not None
                    self.cuts += 1
                    connection.close(cut.reset)
                    cut.fired.set()
                    return
        except OSError:
            pass
        finally:
            connection.close()

    def _look(self, connection: _Connection, data: bytes, *, up: bool) -> int | None:
        """How many bytes of `data` may still pass before the connection is cut; None if it is not cut."""
        begin = 0
        if up and self._cut is not None and connection.cut is None:
            found = (connection.tail + data).find(self._cut.marker)
            if found < 0:
                connection.tail = (connection.tail + data)[-(len(self._cut.marker) - 1) :]
                return None
            begin = max(0, found - len(connection.tail))
            connection.cut, self._cut = self._cut, None
        cut = connection.cut
        if cut is None or cut.fired.is_set():
            return None
        if not up:
            cut.answered_bytes += len(data)
        if cut.up is not up:
            return None
        if cut.after_bytes >= len(data) - begin:
            cut.after_bytes -= len(data) - begin
            return None
        return begin + cut.after_bytes

    async def _write(self, writer: asyncio.StreamWriter, data: bytes, trouble: Trouble) -> None:
        step = trouble.slice_bytes or len(data) or 1
        for begin in range(0, len(data), step):
            piece = data[begin : begin + step]
            wait_s = (trouble.latency_ms + self._random.random() * trouble.jitter_ms) / 1000
            if trouble.rate_bytes_per_s:
                wait_s += len(piece) / trouble.rate_bytes_per_s
            if wait_s:
                await asyncio.sleep(wait_s)
            writer.write(piece)
            await writer.drain()


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Make the peer see a reset instead of an end of stream (TCP only; unix sockets have no reset)."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
