"""Messages between a worker and one of its child processes: a length, then a pickle, over a pair of sockets.

The worker's end never blocks its event loop. Messages that the child does not read yet (because it is importing, hangs
or is stopped) are buffered, and so are incomplete messages from it. The child's end blocks in threads of its own.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

Message = tuple[Any, ...]

_LENGTH = struct.Struct("!Q")
_CHUNK = 65536


def _packed(message: Message) -> bytes:
    packed = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(packed)) + packed


class WorkersEnd:
    """The worker's end; it belongs to the event loop that created it. `received` is called with each message. `broken`
    is called once, from the loop, when no more messages will come, but not after `close`."""

    def __init__(self, sock: socket.socket, received: Callable[[Message], None], broken: Callable[[], None]) -> None:
        self._sock = sock
        self._received = received
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._in = bytearray()
        self._out = bytearray()
        sock.setblocking(False)
        self._loop.add_reader(sock, self._readable)

    def tell(self, message: Message) -> None:
        """Queue a message. If the pipe is broken it is dropped, because `broken` reports that anyway."""
        if self._sock.fileno() < 0:
            return
        waiting = bool(self._out)
        self._out += _packed(message)
        if not waiting:
            self._writable()
            if self._out:
                self._loop.add_writer(self._sock, self._writable)

    def close(self) -> None:
        """Stop sending and receiving. It may be called twice."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    def _writable(self) -> None:
        try:
            del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            return
        except OSError:  # the child is gone; the reader notices, after it has read the child's last messages
            self._out.clear()
        if not self._out:
            self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            came = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            came = b""
        if not came:
            self.close()
            self._broken()
            return
        self._in += came
        while self._sock.fileno() >= 0 and (message := self._next()) is not None:
            self._received(message)

    def _next(self) -> Message | None:
        if len(self._in) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._in)[0]
        if len(self._in) < end:
            return None
        message = pickle.loads(self._in[_LENGTH.size : end])
        del self._in[:end]
        return message


class ChildsEnd:
    """The child's end. One thread receives; all may send."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        sock.set_inheritable(False)  # else programs started by a handler would keep it open after the child's end
        self._sock = sock
        self._file = sock.makefile("rb")
        self._lock = threading.Lock()

    def hear(self) -> Message:
        """The next message. Raises EOFError when the worker is gone."""
        try:
            return pickle.loads(self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0]))
        except OSError as broken:
            raise EOFError from broken

    def tell(self, message: Message) -> None:
        """Raises OSError when the worker is gone."""
        with self._lock:
            self._sock.sendall(_packed(message))

    def _exactly(self, size: int) -> bytes:
        came = self._file.read(size)
        if len(came) < size:
            raise EOFError
        return came
