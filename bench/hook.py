"""A push target in its own process. It shares the cores with the server it measures, so it does as little as possible.

It answers every POST with 200 at once, except those to /hang, which it never answers. For each job it records when the
call arrived, and how long after the due time (header Dueline-Due-At-Ms; the store is on the same machine, so the clocks
agree). Standard library only, started with `-S -E` like load.py.

    python -S -E hook.py PORT COUNT       exits after COUNT calls and prints one line of JSON: late_us, at_ns, hanging
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

READ_BYTES = 64 * 1024
PATIENCE_S = 120.0
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def length_of(head: bytes) -> int:
    at = head.find(b"ontent-length: ")
    at = at if at >= 0 else head.find(b"ontent-Length: ")
    return int(head[at + 15 : head.find(b"\r\n", at)]) if at >= 0 else 0


def due_of(head: bytes) -> int:
    at = head.index(b"Dueline-Due-At-Ms: ") + 19
    return int(head[at : head.index(b"\r\n", at)])


def main() -> int:
    port, count = int(sys.argv[1]), int(sys.argv[2])
    poll = select.epoll()
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    poll.register(listener, select.EPOLLIN)
    sockets: dict[int, socket.socket] = {}
    buffers: dict[int, bytes] = {}
    late_us: list[int] = []
    at_ns: list[int] = []
    hanging = 0
    print("listening", flush=True)
    while len(late_us) < count:
        events = poll.poll(PATIENCE_S)
        if not events:
            print(f"only {len(late_us)} of {count} calls came", file=sys.stderr)
            return 1
        for number, _ in events:
            if number == listener.fileno():
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets[client.fileno()], buffers[client.fileno()] = client, b""
                poll.register(client, select.EPOLLIN)
                continue
            client = sockets[number]
            data = client.recv(READ_BYTES)
            if not data:
                poll.unregister(client)
                sockets.pop(number).close()
                continue
            data = buffers[number] + data
            end = data.find(b"\r\n\r\n")
            if end < 0 or len(data) < end + 4 + length_of(data[: end + 2]):
                buffers[number] = data
                continue
            buffers[number] = b""
            if data.startswith(b"POST /hang"):
                hanging += 1
                continue
            now_ns = time.time_ns()
            at_ns.append(now_ns)
            late_us.append(now_ns // 1000 - due_of(data[: end + 2]) * 1000)
            client.sendall(ANSWER)
    print(json.dumps({"late_us": late_us, "at_ns": at_ns, "hanging": hanging}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
