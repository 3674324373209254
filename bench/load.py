"""The load generator, in its own process. It shares the cores with the server, so it does as little as possible.

What a connection asks is in `dueline.load_generator`. Here it becomes HTTP, on raw non-blocking sockets and epoll:
requests get one of three heads, and answers are delimited by their Content-Length without parsing their heads. Started
with `-S -E`, without site packages: it imports the standard library and that module.

    python -S -E load.py '{"work": "send", "port": 9277, ...}'       the keys are those of `Orders` in loading.py
    prints one line of JSON: the work done after the warm-up and its seconds, the total work, its own CPU time,
    unexpected answers, and what the kind of work itself recorded
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "src"))
from protocols import PROTOCOLS, Native  # beside this file, which is started as a program

from dueline.load_generator import (
    LEASE_MS,
    Answer,
    Conversation,
    NewJobs,
    Request,
    Tally,
    chained,
    consumes,
    lives,
    new_ids,
    same_jobs,
    sends,
    text_body,
)

Orders = dict[str, Any]
Notes = dict[str, Any]

READ_BYTES = 64 * 1024
PATIENCE_S = 30.0
WAIT_S = 120


# --- bytes ----------------------------------------------------------------------------------------------------------


def head(orders: Orders, path: str, content_type: str = "application/json") -> bytes:
    """The head of a POST, with a placeholder for the length."""
    host = f"127.0.0.1:{orders['port']}"
    more = [orders["header"]] if orders["header"] else []
    lines = (f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Type: {content_type}", *more, "Content-Length: ")
    return "\r\n".join(lines).encode()


def fixed(head: bytes, body: bytes) -> bytes:
    return head + b"%d\r\n\r\n" % len(body) + body


class Http:
    """Requests and answers of a protocol as bytes."""

    def __init__(self, orders: Orders) -> None:
        protocol = PROTOCOLS[orders["protocol"]](orders)
        self._heads = {name: head(orders, path, protocol.content_type) for name, path in protocol.paths.items()}

    def request(self, operation: str, body: bytes) -> bytes:
        return self._heads[operation] + b"%d\r\n\r\n" % len(body) + body

    def answer(self, data: bytes) -> Answer | None:
        """None: it is not complete."""
        end = data.find(b"\r\n\r\n")
        at = data.find(b"ontent-length: ", 0, end)
        if end < 0 or (at >= 0 and len(data) < end + 4 + int(data[at + 15 : data.find(b"\r", at)])):
            return None
        return int(data[9:12]), data[end + 4 :]


class OtherTopics(Http):
    """One request each to one topic after another: the topic's name with the next number, or some numbers in turns."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders)
        self._orders, self._next = orders, itertools.count().__next__

    def request(self, operation: str, body: bytes) -> bytes:
        number = self._next() % (self._orders["topics"] or sys.maxsize)
        topic = f"{self._orders['topic']}-{number}"
        return fixed(head(self._orders, f"/v1/topics/{topic}/jobs"), body)


class Resp:
    """The base: what `redis-benchmark -t set` sends, whatever the request is."""

    def __init__(self, orders: Orders) -> None:
        pass

    def request(self, operation: str, body: bytes) -> bytes:
        return b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$3\r\nxxx\r\n"

    def answer(self, data: bytes) -> Answer | None:
        return (200 if data == b"+OK\r\n" else 500, data) if data.endswith(b"\r\n") else None


class Lines:
    """beanstalkd's lines: a request is complete as it is, and only a reserved job has more than a line."""

    def __init__(self, orders: Orders) -> None:
        pass

    def request(self, operation: str, body: bytes) -> bytes:
        return body

    def answer(self, data: bytes) -> Answer | None:
        end = data.find(b"\r\n") + 2
        if end < 2:
            return None
        if data.startswith(b"RESERVED"):
            end += int(data[: end - 2].rsplit(b" ", 1)[1]) + 2
        return (200, data) if len(data) >= end else None


Wire = Http | Resp | Lines
WIRES: dict[str, type[Wire]] = {"set": Resp, "topics": OtherTopics, "beanstalkd": Lines}


# --- conversations --------------------------------------------------------------------------------------------------


def delays(orders: Orders) -> Callable[[], int]:
    """The delay of the next job in ms: fixed, or drawn from the range."""
    low, high = orders["delay_ms"]
    return (lambda: low) if low == high else (lambda: random.randrange(low, high))


def many_shapes(orders: Orders, sizes: Notes) -> NewJobs:
    """Bodies of every length in the range and ids of every length 8..40 (or hex), to average out allocator steps."""
    low, high = orders["body_range"]
    next_id, delay, hexadecimal = new_ids(), delays(orders), orders["id"] == "hex"
    sizes.update(body_bytes=0, id_bytes=0)

    def new_jobs(count: int) -> bytes:
        jobs: list[bytes] = []
        for _ in range(count):
            number = next_id()
            id = b"%032x" % number if hexadecimal else text_id(number)
            size = random.randint(low, high)
            sizes["body_bytes"] += size
            sizes["id_bytes"] += len(id)
            jobs.append(b'{"id":"%b","delay_ms":%d,"body":%b}' % (id, delay(), text_body(size)))
        return b"[" + b",".join(jobs) + b"]"

    return new_jobs


def text_id(number: int) -> bytes:
    """A unique id of 8 to 40 characters for each number, which is neither 32 hex digits nor a UUID."""
    digits = "ghijklmnopqrstuvwxyz"
    text, rest = "", number & 0xFFFFFFFFFFFF
    while rest:
        rest, digit = divmod(rest, len(digits))
        text += digits[digit]
    length = 8 + number % 33
    return (text[:length] if len(text) >= length else text + "-" * (length - len(text))).encode()


def late_jobs(orders: Orders, tally: Tally, notes: Notes) -> Conversation:
    """Consume until the quota is used up. Records how late each job was.

    script_ms: the script's time minus the due time; a lease ends `LEASE_MS` after the script's now, rounded up.
    client_us: our time at the answer minus the due time; the store is on this machine, so the clocks agree.
    """
    script_ms: list[int] = notes.setdefault("script_ms", [])
    client_us: list[int] = notes.setdefault("client_us", [])

    def arrived(jobs: list[Any], at_ns: int, _: int) -> None:
        tally.done += tally.take(len(jobs))
        for job in jobs:
            script_ms.append(job["lease_until_ms"] - LEASE_MS - job["due_at_ms"])
            client_us.append(at_ns // 1000 - job["due_at_ms"] * 1000)

    return consumes(tally, orders["jobs_per_call"], lambda: bool(tally.quota), arrived)


def waits(protocol: Native, tally: Tally) -> Conversation:
    """Wait for a job, ack it, and wait again."""
    pull = b'{"max":1,"wait_ms":%d}' % (WAIT_S * 1000)
    while True:
        status, text = yield "pull", pull
        leased = protocol.ack(text)
        if leased:
            tally.done += 1
            status, text = yield "ack", leased
        if status != 200:
            tally.refuse(0, status, text)


def sets(tally: Tally) -> Conversation:
    """Its own loop, not `sends`, because it is the base of ratios and so must cost as little as possible."""
    while tally.take(1):
        status, text = yield "set", b""
        if status == 200:
            tally.done += 1
        else:
            tally.refuse(1, status, text)


def single_sends(protocol: Native, tally: Tally, next_id: Callable[[], int]) -> Conversation:
    while tally.take(1):
        status, text = yield "send", protocol.send(next_id())
        if protocol.is_sent(status, text):
            tally.done += 1
        else:
            tally.refuse(1, status, text)


def single_pulls(protocol: Native, tally: Tally, acks: list[str]) -> Conversation:
    """Pull jobs that are due already, and note the ack of each."""
    while tally.take(1):
        status, text = yield "pull", protocol.pull
        ack = protocol.ack(text)
        if status == 200 and ack:
            acks.append(ack.decode())
            tally.done += 1
        else:
            tally.refuse(1, status, text)


def single_acks(protocol: Native, tally: Tally, acks: list[str]) -> Conversation:
    """The acks that pulls have noted."""
    while acks and tally.take(1):
        status, text = yield "ack", acks.pop().encode()
        if protocol.is_acked(status, text):
            tally.done += 1
        else:
            tally.refuse(1, status, text)


def single_lives(protocol: Native, tally: Tally, next_id: Callable[[], int]) -> Conversation:
    """A send, a pull and an ack. The pulled job may be another connection's."""
    while tally.take(1):
        status, text = yield "send", protocol.send(next_id())
        if protocol.is_sent(status, text):
            status, text = yield "pull", protocol.pull
            ack = protocol.ack(text)
            if ack:
                status, text = yield "ack", ack
                if protocol.is_acked(status, text):
                    tally.done += 1
                    continue
        tally.refuse(1, status, text)


def single_calls(orders: Orders, tally: Tally, notes: Notes) -> Callable[[], Conversation]:
    """Conversations of one kind of call. Pulls leave their acks in a file for the acks that follow."""
    protocol, next_id = PROTOCOLS[orders["protocol"]](orders), new_ids()
    if orders["work"] == "send":
        return lambda: single_sends(protocol, tally, next_id)
    if orders["work"] == "life":
        return lambda: single_lives(protocol, tally, next_id)
    if orders["work"] == "pull":
        acks: list[str] = notes.setdefault("acks", [])
        return lambda: single_pulls(protocol, tally, acks)
    with open(orders["acks"], encoding="utf-8") as file:
        pulled: list[str] = json.load(file)
    return lambda: single_acks(protocol, tally, pulled)


def conversations(orders: Orders, tally: Tally, notes: Notes) -> Callable[[], Conversation]:
    """Makes the conversation of one more connection."""
    work, body_bytes = orders["work"], orders["body_bytes"]
    if work == "set":
        return lambda: sets(tally)
    if work in ("pull", "ack") or orders["protocol"] != "native":
        return single_calls(orders, tally, notes)
    if work == "chained":
        due_now = same_jobs(orders["body_bytes"], lambda: 0)
        return lambda: chained(due_now, tally, 0, PATIENCE_S)
    if work == "life":
        due_now = same_jobs(body_bytes, lambda: 0)
        return lambda: lives(due_now, tally, 0, PATIENCE_S)
    if work == "wait":
        protocol = Native(orders)
        return lambda: waits(protocol, tally)
    if work == "consume":
        return lambda: late_jobs(orders, tally, notes)
    if work not in ("send", "bulk", "topics"):
        raise ValueError(f"no such work: {work}")
    is_one_shape = orders["id"] == "hex" and body_bytes
    new_jobs = same_jobs(body_bytes, delays(orders)) if is_one_shape else many_shapes(orders, notes)
    return lambda: sends(new_jobs, tally, orders["jobs_per_call"] if work == "bulk" else 1)


# --- the loop -------------------------------------------------------------------------------------------------------


class Connection:
    """A socket and its conversation. `rest` holds the received part of an incomplete answer."""

    __slots__ = ("answered", "recv", "rest", "send", "sock")

    def __init__(self, sock: socket.socket, conversation: Conversation) -> None:
        self.sock = sock
        self.recv = sock.recv
        self.send = sock.send
        self.answered = conversation.send
        self.rest = b""


def connect(orders: Orders) -> socket.socket:
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


class Pace:
    """Sends at a steady rate, or at once (`per_s` 0). What comes before its time is held."""

    def __init__(self, per_s: float, wire: Wire) -> None:
        self._gap_s = 1 / per_s if per_s else 0.0
        self._next_s = time.perf_counter()
        self._held: deque[tuple[Connection, bytes]] = deque()
        self._bytes = wire.request

    def start(self, connection: Connection, request: Request) -> None:
        if self._gap_s and request[0] == "send":
            self._held.append((connection, self._bytes(*request)))
        else:
            push(connection, self._bytes(*request))

    def release(self) -> float:
        """Send what is due. Returns the seconds until the next, or until patience ends."""
        while self._held:
            left_s = self._next_s - time.perf_counter()
            if left_s > 0:
                return left_s
            self._next_s += self._gap_s
            push(*self._held.popleft())
        return PATIENCE_S


def run(orders: Orders) -> dict[str, Any]:
    """Run all connections at once, for a time or until the quota is done. The first `warm_s` are not counted."""
    cpu_s, tally, notes = time.process_time(), Tally(orders["count"]), Notes()
    begin = conversations(orders, tally, notes)
    wire = WIRES.get(orders["work"], WIRES.get(orders["protocol"], Http))(orders)
    poller, open_connections, pace = select.epoll(), dict[int, Connection](), Pace(orders["per_s"], wire)
    socks = [connect(orders) for _ in range(orders["connections"])]
    begun_s = time.perf_counter()
    for sock in socks:
        sock.setblocking(False)
        conversation = begin()
        connection = Connection(sock, conversation)
        request = next(conversation, None)
        if request is None:
            continue
        open_connections[sock.fileno()] = connection
        poller.register(sock, select.EPOLLIN)
        pace.start(connection, request)
    done_before, from_s, cold = 0, begun_s, orders["warm_s"] > 0
    for now_s in turns(poller, open_connections, pace, wire, tally):
        if cold and now_s - begun_s >= orders["warm_s"]:
            done_before, from_s, cold = tally.done, now_s, False
        if orders["seconds"] and not cold and now_s - from_s >= orders["seconds"]:
            break
    seconds, spent_s = time.perf_counter() - from_s, time.process_time() - cpu_s
    if acks := notes.pop("acks", None):
        with open(orders["acks"], "w", encoding="utf-8") as file:
            json.dump(acks, file)
    result = {"done": tally.done - done_before, "seconds": seconds, "in_all": tally.done, "cpu_s": spent_s}
    return {**result, "errors": tally.errors, "first_error": tally.first_error, "notes": notes}


def turns(
    poller: select.epoll, open_connections: dict[int, Connection], pace: Pace, wire: Wire, tally: Tally
) -> Iterator[float]:
    """Move bytes and yield the time after every turn of the loop. Ends when all conversations have ended."""
    heard_s = time.perf_counter()
    while open_connections:
        events = poller.poll(pace.release())
        now_s = time.perf_counter()
        if not events and now_s - heard_s >= PATIENCE_S:
            tally.refuse(0, 0, b"no answer for %d s" % PATIENCE_S)
            return
        heard_s = now_s if events else heard_s
        for fd, _ in events:
            connection = open_connections[fd]
            data = connection.recv(READ_BYTES)
            if not data:
                tally.refuse(0, 0, b"the server closed the connection")
                del open_connections[fd]
                poller.unregister(fd)
                continue
            if connection.rest:
                data = connection.rest + data
            answer = wire.answer(data)
            if answer is None:
                connection.rest = data
                continue
            connection.rest = b""
            try:
                pace.start(connection, connection.answered(answer))
            except StopIteration:
                del open_connections[fd]
                poller.unregister(fd)
        yield now_s


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
