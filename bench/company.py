"""The clients of the row `crowd`: a good client, and its company of strangers, or a busy loop.

Each role is its own process, started with `-S -E` like the load generator (load.py), and uses its requests. Each calls
from a loopback address of its own, because the server counts connections by address.

    python -S -E company.py good PORT SECONDS        one send every 5 ms on one connection; prints the latencies in ms
    python -S -E company.py pipelining PORT SECONDS  100 connections, 32 requests ahead on each
    python -S -E company.py slow PORT SECONDS        2,000 connections that send one byte of a request every second
    python -S -E company.py flood PORT SECONDS       10,000 connections that send nothing; 500 a second are opened again
    python -S -E company.py spinner SHARE SECONDS    burns that share of one core, in slices of 5 ms
    each prints one line of JSON: {"cpu_s": its own CPU time, "done": answers, "latencies_ms": [...]}
"""

from __future__ import annotations

import contextlib
import json
import resource
import select
import socket
import sys
import time

import load  # beside this file, which is started as a program

PIPELINING, AHEAD, SLOW, FLOOD, AGAIN_PER_S = 100, 32, 2_000, 10_000, 500
FROM = {"good": "127.0.0.3", "pipelining": "127.0.0.5", "slow": "127.0.0.4", "flood": "127.0.0.2"}
PAUSE_S = 0.005
SLICE_S = 0.005
BODY = b'{"delay_ms":3600000,"body":"' + b"x" * 113 + b'"}'


def connected(port: int, role: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), source_address=(FROM[role], 0))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def send(port: int, topic: str) -> bytes:
    """One send as bytes."""
    return load.fixed(load.head({"port": port, "header": ""}, f"/v1/topics/{topic}/jobs"), BODY)


def good(port: int, seconds: float) -> list[float]:
    sock, request = connected(port, "good"), send(port, "good")
    latencies_ms: list[float] = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        begun_s = time.perf_counter()
        sock.sendall(request)
        answer = sock.recv(65536)
        if answer[9:12] != b"201":
            raise SystemExit(f"the good client was answered {answer[:300]!r}")
        latencies_ms.append((time.perf_counter() - begun_s) * 1000)
        time.sleep(PAUSE_S)
    return latencies_ms


def pipelining(port: int, seconds: float) -> int:
    """Each connection sends the next requests when the previous ones are answered."""
    ahead = send(port, "crowd") * AHEAD
    poller, socks, due, done = select.epoll(), {}, {}, 0
    for _ in range(PIPELINING):
        sock = connected(port, "pipelining")
        socks[sock.fileno()], due[sock.fileno()] = sock, AHEAD
        poller.register(sock.fileno(), select.EPOLLIN)
        sock.sendall(ahead)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        for fd, _ in poller.poll(0.1):
            answers = socks[fd].recv(65536)
            if not answers:
                raise SystemExit("a pipelining client was cut off")
            count = answers.count(b"HTTP/1.1 ")
            done += count
            due[fd] -= count
            if due[fd] == 0:
                due[fd] = AHEAD
                socks[fd].sendall(ahead)
    return done


def slow(port: int, seconds: float) -> int:
    """One byte a second per connection. The server closes those that are too many; new ones replace them."""
    request, done = send(port, "slow"), 0
    socks: list[tuple[socket.socket, int]] = [(connected(port, "slow"), 0) for _ in range(SLOW)]
    until_s = time.monotonic() + seconds
    place = 0
    while time.monotonic() < until_s:
        for _ in range(SLOW // 50):
            sock, sent = socks[place]
            try:
                sock.send(request[sent : sent + 1])
                socks[place] = (sock, sent + 1)
            except OSError:
                done += 1
                sock.close()
                with contextlib.suppress(OSError):
                    socks[place] = (connected(port, "slow"), 0)
            place = (place + 1) % SLOW
        time.sleep(0.02)
    return done


def flood(port: int, seconds: float) -> int:
    """As many connections as the server keeps, and again and again those that it has closed. Returns how many it kept
    in the end."""
    until_s = time.monotonic() + seconds
    socks = [connected(port, "flood") for _ in range(FLOOD)]
    place = 0
    while time.monotonic() < until_s:
        for _ in range(AGAIN_PER_S // 50):
            while not is_closed(socks[place]) and time.monotonic() < until_s:
                place = (place + 1) % FLOOD
            socks[place].close()
            with contextlib.suppress(OSError):
                socks[place] = connected(port, "flood")
            place = (place + 1) % FLOOD
        time.sleep(0.02)
    return sum(not is_closed(sock) for sock in socks)


def is_closed(sock: socket.socket) -> bool:
    if sock.fileno() < 0:
        return True
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def spinner(share: float, seconds: float) -> int:
    until_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < until_s:
        while time.monotonic() < now_s + SLICE_S * share:
            pass
        time.sleep(SLICE_S * (1 - share))
    return 0


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    role, first, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    latencies_ms: list[float] = []
    done = 0
    if role == "good":
        latencies_ms = good(int(first), seconds)
    elif role == "spinner":
        done = spinner(first, seconds)
    else:
        done = {"pipelining": pipelining, "slow": slow, "flood": flood}[role](int(first), seconds)
    print(json.dumps({"cpu_s": time.process_time(), "done": done, "latencies_ms": latencies_ms}))


if __name__ == "__main__":
    main()
