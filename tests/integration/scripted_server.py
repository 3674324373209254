"""A server of few words: it answers each request with the next line of a script, and keeps what it was asked.

For what a real server does too seldom to wait for: 503s, broken connections, answers of a stranger.
"""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import dataclass, field
from types import TracebackType

CUT = b""  # close the connection after the request, without an answer
HANG = b"hang"  # never answer; the client has to end the connection
LATE = b"late "  # and an answer: it comes when the client says more on this connection, as if it were that one's


def answer(status: int, body: bytes, *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers])
    return head.encode() + b"\r\n\r\n" + body


@dataclass
class ScriptedServer:
    """`script[i]` answers the i-th request, the last line all later ones. `closing`: one request a connection.
    `closed` is released once for each connection that the server has closed."""

    script: list[bytes]
    requests: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0
    closing: bool = False
    tls: ssl.SSLContext | None = None
    closed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __enter__(self) -> ScriptedServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._meet, args=(peer,), daemon=True).start()

    def _meet(self, peer: socket.socket) -> None:
        with peer:
            peer.settimeout(5)
            try:
                self._talk(peer if self.tls is None else self.tls.wrap_socket(peer, server_side=True))
            except OSError:
                pass  # a client that does not trust us
        self.closed.release()

    def _talk(self, peer: socket.socket) -> None:
        try:
            while (request := _read(peer)) is not None:
                line = self.script[min(len(self.requests), len(self.script) - 1)]
                self.requests.append(request)
                if line == CUT:
                    return
                if line == HANG:
                    peer.recv(1)
                    return
                if line.startswith(LATE):
                    if peer.recv(1):
                        peer.sendall(line[len(LATE) :])
                    return
                peer.sendall(line)
                if self.closing:
                    return
        except OSError:
            return


def _read(peer: socket.socket) -> bytes | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = peer.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += peer.recv(65536)
    return head + b"\r\n\r\n" + body
