"""Messages between a worker and one of its child processes: a length, then a pickle, over a pair of sockets.

The worker's end never waits in its event loop. What the child does not read (it still imports, it hangs, it was
stopped) is kept until it does, and half a message from it is none yet. The child's end waits: it has threads for that.
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
    """In the event loop that made it. `heard`: a message has come. `broken`: nothing will come any more; it is called
    once, from the loop itself, and not after `close`."""

    def __init__(self, sock: socket.socket, heard: Callable[[Message], None], broken: Callable[[], None]) -> None:
        self._sock = sock
        self._heard = heard
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._in = bytearray()
        self._out = bytearray()
        sock.setblocking(False)
        self._loop.add_reader(sock, self._readable)

    def tell(self, message: Message) -> None:
        """Send it, in its turn. What cannot arrive is dropped: that the pipe is broken is told anyway."""
        if self._sock.fileno() < 0:
            return
        waiting = bool(self._out)
        self._out += _packed(message)
        if not waiting:
            self._writable()
            if self._out:
                self._loop.add_writer(self._sock, self._writable)

    def close(self) -> None:
        """Hear and say nothing more. It may be called twice."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    def _writable(self) -> None:
        try:
            del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            return
        except OSError:  # the child is gone: the reader is told so, after the last words that are still to be read
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
            self._heard(message)

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
    """In the child: one thread hears, all may tell."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        sock.set_inheritable(False)  # programs that a handler starts would keep it open after the child's end
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
