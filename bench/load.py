"""The load generator, in its own process. It shares the cores with the server, so it does as little as possible.

It uses raw non-blocking sockets and epoll, makes requests with one `%` on a template, and delimits answers by their
Content-Length without parsing them. Each connection is a generator: it yields a request's bytes and is sent the whole
answer; the loop below only moves bytes. Standard library only, started with `-S -E`: no site packages, no project code.

    python -S -E load.py '{"work": "send", "port": 9277, ...}'       the keys are those of `Orders` in loading.py
    prints one line of JSON: the work done after the warm-up and its seconds, the total work, its own CPU time,
    unexpected answers, and what the kind of work itself recorded
"""

from __future__ import annotations

import json
import random
import select
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

Talk = Generator[bytes, bytes, None]
"""One connection's conversation: yields requests, is sent whole answers."""

READ_BYTES = 64 * 1024
PATIENCE_S = 30.0


class Tally:
    """What all connections together have done. `quota` is how many may still start (None: any number)."""

    def __init__(self, quota: int | None) -> None:
        self.done = 0
        self.errors = 0
        self.first_error = ""
        self.quota = quota
        self.notes: dict[str, Any] = {}
        self._made = random.getrandbits(64) << 64  # ids of two generators never collide

    def next_id(self) -> int:
        self._made += 1
        return self._made

    def take(self, count: int) -> int:
        """How many of `count` may start."""
        if self.quota is None:
            return count
        count = min(count, self.quota)
        self.quota -= count
        return count

    def failed(self, answer: bytes) -> None:
        self.errors += 1
        if not self.first_error:
            self.first_error = answer[:400].decode("latin-1")


# --- conversations --------------------------------------------------------------------------------------------------


def head(orders: dict[str, Any], path: str) -> bytes:
    """The head of a POST, with a placeholder for the length."""
    host = f"127.0.0.1:{orders['port']}"
    lines = (f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Content-Length: ")
    return "\r\n".join(lines).encode()


def fixed(head: bytes, body: bytes) -> bytes:
    return head + b"%d\r\n\r\n" % len(body) + body


def delays(orders: dict[str, Any]) -> Callable[[], int]:
    """The delay of the next job in ms: fixed, or drawn from the range."""
    low, high = orders["delay_ms"]
    return (lambda: low) if low == high else (lambda: random.randrange(low, high))


def sends(orders: dict[str, Any], tally: Tally) -> Talk:
    """One job per call."""
    body = b'{"id":"%032x","delay_ms":%11d,"body":"' + b"x" * (orders["body_bytes"] - 2) + b'"}'
    request = fixed(head(orders, f"/v1/topics/{orders['topic']}/jobs"), body % (0, 0)).replace(body % (0, 0), body)
    delay = delays(orders)
    while tally.take(1):
        answer = yield request % (tally.next_id(), delay())
        if answer[9:12] == b"201":
            tally.done += 1
        else:
            tally.failed(answer)


def lives(orders: dict[str, Any], tally: Tally) -> Talk:
    """Send, pull and ack, one job each. The pulled job may be another connection's; each life still has one of each."""
    topic = f"/v1/topics/{orders['topic']}"
    body = b'{"id":"%032x","body":"' + b"x" * (orders["body_bytes"] - 2) + b'"}'
    send = fixed(head(orders, topic + "/jobs"), body % 0).replace(body % 0, body)
    pull = fixed(head(orders, topic + "/pull"), b'{"max":1}')
    ack_head = head(orders, topic + "/ack")
    tally.notes.setdefault("empty_pulls", 0)
    while tally.take(1):
        answer = yield send % tally.next_id()
        if answer[9:12] != b"201":
            tally.failed(answer)
            continue
        while True:
            answer = yield pull
            at = answer.find(b'{"id":"')
            if at >= 0 or answer[9:12] != b"200":
                break
            tally.notes["empty_pulls"] += 1
        if at < 0:
            tally.failed(answer)
            continue
        id = answer[at + 7 : answer.find(b'"', at + 7)]
        at = answer.find(b'"lease":"') + 9
        lease = answer[at : answer.find(b'"', at)]
        answer = yield fixed(ack_head, b'{"jobs":[{"id":"%b","lease":"%b"}]}' % (id, lease))
        if answer[9:12] == b"200":
            tally.done += 1
        else:
            tally.failed(answer)


def bulk(orders: dict[str, Any], tally: Tally) -> Talk:
    """Many jobs per call. Ids and bodies have one shape, or vary as the orders specify."""
    make = one_shape(orders, tally) if orders["id"] == "hex" and orders["body_bytes"] else many_shapes(orders, tally)
    first = head(orders, f"/v1/topics/{orders['topic']}/jobs")
    while count := tally.take(orders["jobs_per_call"]):
        answer = yield fixed(first, make(count))
        if answer[9:12] == b"201" and answer.count(b'"result":"created"') == count:
            tally.done += count
        else:
            tally.failed(answer)


def one_shape(orders: dict[str, Any], tally: Tally) -> Callable[[int], bytes]:
    """Hex ids of 32 characters and one body, so that a whole call is one `%`."""
    one = b'{"id":"%032x","delay_ms":%d,"body":"' + b"x" * (orders["body_bytes"] - 2) + b'"}'
    delay = delays(orders)
    templates: dict[int, bytes] = {}

    def make(count: int) -> bytes:
        template = templates.get(count)
        if template is None:
            template = templates[count] = b"[" + b",".join([one] * count) + b"]"
        return template % tuple(value for _ in range(count) for value in (tally.next_id(), delay()))

    return make


def many_shapes(orders: dict[str, Any], tally: Tally) -> Callable[[int], bytes]:
    """Bodies of every length in the range and ids of every length 8..40 (or hex), to average out allocator steps."""
    low, high = orders["body_range"]
    delay, hexadecimal = delays(orders), orders["id"] == "hex"
    sizes = tally.notes
    sizes.setdefault("body_bytes", 0)
    sizes.setdefault("id_bytes", 0)

    def make(count: int) -> bytes:
        jobs: list[bytes] = []
        for _ in range(count):
            number = tally.next_id()
            id = b"%032x" % number if hexadecimal else text_id(number)
            size = random.randint(low, high)
            sizes["body_bytes"] += size
            sizes["id_bytes"] += len(id)
            jobs.append(b'{"id":"%b","delay_ms":%d,"body":"%b"}' % (id, delay(), b"x" * (size - 2)))
        return b"[" + b",".join(jobs) + b"]"

    return make


def text_id(number: int) -> bytes:
    """A unique id of 8 to 40 characters for each number, which is neither 32 hex digits nor a UUID."""
    digits = "ghijklmnopqrstuvwxyz"
    text, rest = "", number & 0xFFFFFFFFFFFF
    while rest:
        rest, digit = divmod(rest, len(digits))
        text += digits[digit]
    length = 8 + number % 33
    return (text[:length] if len(text) >= length else text + "-" * (length - len(text))).encode()


def topics(orders: dict[str, Any], tally: Tally) -> Talk:
    """One job each into one topic after another."""
    body = b'{"delay_ms":%d,"body":"x"}' % orders["delay_ms"][0]
    while tally.take(1):
        path = f"/v1/topics/{orders['topic']}-{tally.next_id() & 0xFFFFFFFF}/jobs"
        answer = yield fixed(head(orders, path), body)
        if answer[9:12] == b"201":
            tally.done += 1
        else:
            tally.failed(answer)


def consumers(orders: dict[str, Any], tally: Tally) -> Talk:
    """Long-poll and ack the jobs received, until the quota is used up. Records how late each job was.

    script_ms: the script's time minus the due time; a lease ends `lease_ms` after the script's now, rounded up.
    client_us: our time at the answer minus the due time; the store is on this machine, so the clocks agree.
    """
    topic, lease_ms = f"/v1/topics/{orders['topic']}", 30_000
    asked = b'{"max":%d,"wait_ms":%d,"lease_ms":%d}' % (orders["jobs_per_call"], 2_000, lease_ms)
    pull, ack_head = fixed(head(orders, topic + "/pull"), asked), head(orders, topic + "/ack")
    script_ms: list[int] = tally.notes.setdefault("script_ms", [])
    client_us: list[int] = tally.notes.setdefault("client_us", [])
    while tally.quota:
        answer = yield pull
        now_us = time.time_ns() // 1000
        if answer[9:12] != b"200":
            tally.failed(answer)
            continue
        jobs = json.loads(answer[answer.find(b"\r\n\r\n") + 4 :])["jobs"]
        if not jobs:
            continue
        tally.take(len(jobs))
        for job in jobs:
            script_ms.append(job["lease_until_ms"] - lease_ms - job["due_at_ms"])
            client_us.append(now_us - job["due_at_ms"] * 1000)
        leases = ",".join(f'{{"id":"{job["id"]}","lease":"{job["lease"]}"}}' for job in jobs)
        answer = yield fixed(ack_head, b'{"jobs":[%b]}' % leases.encode())
        if answer[9:12] == b"200":
            tally.done += len(jobs)
        else:
            tally.failed(answer)


def sets(orders: dict[str, Any], tally: Tally) -> Talk:
    """The base: what `redis-benchmark -t set` sends."""
    request = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$3\r\nxxx\r\n"
    while tally.take(1):
        answer = yield request
        if answer == b"+OK\r\n":
            tally.done += 1
        else:
            tally.failed(answer)


WORK: dict[str, Callable[[dict[str, Any], Tally], Talk]] = {
    "send": sends, "life": lives, "bulk": bulk, "topics": topics, "consume": consumers, "set": sets,
}  # fmt: skip


# --- the loop -------------------------------------------------------------------------------------------------------


def is_whole_http(data: bytes) -> bool:
    end = data.find(b"\r\n\r\n")
    at = data.find(b"ontent-length: ", 0, end)
    if at < 0:
        return end >= 0
    return len(data) >= end + 4 + int(data[at + 15 : data.find(b"\r", at)])


def is_whole_resp(data: bytes) -> bool:
    return data.endswith(b"\r\n")


class Connection:
    """A socket and its conversation. `rest` holds the received part of an incomplete answer."""

    __slots__ = ("answered", "recv", "rest", "send", "sock")

    def __init__(self, sock: socket.socket, talk: Talk) -> None:
        self.sock = sock
        self.recv = sock.recv
        self.send = sock.send
        self.answered = talk.send
        self.rest = b""


def connect(orders: dict[str, Any]) -> socket.socket:
    if orders["socket"]:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(orders["socket"])
        return sock
    sock = socket.create_connection(("127.0.0.1", orders["port"]))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def push(connection: Connection, request: bytes) -> None:
    """Send a request. All but the largest fit into the kernel's buffer; for those, blocking is fine."""
    sent = connection.send(request)
    if sent < len(request):
        connection.sock.setblocking(True)
        connection.sock.sendall(request[sent:])
        connection.sock.setblocking(False)


def run(orders: dict[str, Any]) -> dict[str, Any]:
    """Run all connections at once, for a time or until the quota is done. The first `warm_s` are not counted."""
    tally = Tally(orders["count"])
    is_whole = is_whole_resp if orders["work"] == "set" else is_whole_http
    poller, open_connections = select.epoll(), dict[int, Connection]()
    socks = [connect(orders) for _ in range(orders["connections"])]
    begun_s = time.perf_counter()
    for sock in socks:
        sock.setblocking(False)
        talk = WORK[orders["work"]](orders, tally)
        connection = Connection(sock, talk)
        request = next(talk, None)
        if request is None:
            continue
        open_connections[sock.fileno()] = connection
        poller.register(sock, select.EPOLLIN)
        push(connection, request)
    done_before, from_s, cold = 0, begun_s, orders["warm_s"] > 0
    for now_s in turns(poller, open_connections, is_whole, tally):
        if cold and now_s - begun_s >= orders["warm_s"]:
            done_before, from_s, cold = tally.done, now_s, False
        if orders["seconds"] and not cold and now_s - from_s >= orders["seconds"]:
            break
    seconds = time.perf_counter() - from_s
    result = {"done": tally.done - done_before, "seconds": seconds, "in_all": tally.done, "cpu_s": time.process_time()}
    return {**result, "errors": tally.errors, "first_error": tally.first_error, "notes": tally.notes}


def turns(
    poller: select.epoll, open_connections: dict[int, Connection], is_whole: Callable[[bytes], bool], tally: Tally
) -> Iterator[float]:
    """Move bytes and yield the time after every turn of the loop. Ends when all conversations have ended."""
    heard_s = time.perf_counter()
    while open_connections:
        events = poller.poll(PATIENCE_S)
        now_s = time.perf_counter()
        if not events and now_s - heard_s >= PATIENCE_S:
            tally.failed(b"no answer for %d s" % PATIENCE_S)
            return
        heard_s = now_s
        for fd, _ in events:
            connection = open_connections[fd]
            data = connection.recv(READ_BYTES)
            if not data:
                tally.failed(b"the server closed the connection")
                del open_connections[fd]
                poller.unregister(fd)
                continue
            if connection.rest:
                data = connection.rest + data
            if not is_whole(data):
                connection.rest = data
                continue
            connection.rest = b""
            try:
                push(connection, connection.answered(data))
            except StopIteration:
                del open_connections[fd]
                poller.unregister(fd)
        yield now_s


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
