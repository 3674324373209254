"""Single sends from threads without an event loop, on a connection that the sending thread uses directly.

Through the loop, a send would cost two thread switches and a turn of the loop, which is more than the store's own work.
This path handles only plain sends. Everything else (tags, merge groups, a changed policy, a store that is down or
loading, a script that it does not have) is left to the async path, which batches, retries and reports. Once a call has
been sent, however, it is completed here: it is repeated with its nonce until the store answers.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from select import select
from time import monotonic, perf_counter, sleep
from typing import Any

import hiredis
from redis.exceptions import RedisError

from ...certificate_files import BadCertificate
from ...engine.errors import UnknownOutcome
from ...engine.job import Partition
from ...engine.store import SendItem, SendOutcome
from . import codec
from .calls import Calls, expectation, read_reply
from .connections import blocking_connection
from .epochs import Carried
from .openings import STORED
from .resp import pieces
from .tls import StoreTls

READ_BYTES = 65_536
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.5  # before a call is repeated
LOOKING_S = 0.000_15  # how long to poll for a reply before sleeping
SOON_S = 0.000_3  # if replies usually take longer (disk or network), sleep before polling
FAR_S = 0.002  # if replies usually take longer, do not poll
MOST_HEADS = 1_024
_MORE: Any = object()


class SingleSends:
    """Safe to use from any thread. If it is busy, `send` returns None, and the caller uses the async path.

    `unlisted(partition)` is called in the sending thread when the store reports that the partition's topic is not
    registered. `report(partition, item, outcome)` is called there while somebody records; without an outcome, it is
    unknown."""

    def __init__(
        self,
        url: str,
        tls: StoreTls,
        calls: Calls,
        reply_timeout_s: float,
        patience_s: float,
        unlisted: Callable[[Partition], None],
        report: Callable[[Partition, SendItem, SendOutcome | None], None],
    ) -> None:
        self._url = url
        self._tls = tls
        self._calls = calls
        self._clock = calls.clock
        self._epochs = calls.epochs
        self._reply_timeout_s = reply_timeout_s
        self._patience_s = patience_s
        self._unlisted = unlisted
        self._report = report
        self._lock = threading.Lock()
        self._connection: Any = None
        self._socket: socket.socket | None = None
        self._reader: Any = None
        self._usual_s = 0.0  # how long recent replies took
        self._nonce = int.from_bytes(os.urandom(4), "big") << 24
        self._heads: dict[tuple[Partition, int], tuple[bytes, bytes, bytes]] = {}

    def send(self, partition: Partition, item: SendItem, policy_version: int) -> SendOutcome | None:
        """Store a job. None: nothing was sent; use the async path. Raises UnknownOutcome if the call was sent and no
        reply came in time."""
        guards = self._calls.link.guards
        if guards is not None and guards.closed:
            return None
        if not codec.is_single_send(item) or not self._lock.acquire(blocking=False):
            return None
        try:
            return self._send(partition, item, policy_version)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection; a thread that waits on it gets an error. The next send opens another one."""
        connected = self._socket
        if connected is not None:
            try:
                # The method of a TLS socket would first stop encrypting, and the other thread could still send.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already
        with self._lock:
            self._end()

    def _send(self, partition: Partition, item: SendItem, policy_version: int) -> SendOutcome | None:
        head, caller, channel = self._heads.get((partition, policy_version)) or self._head(partition, policy_version)
        numbers, blob = codec.encode_send(
            [item], policy_version, partition.topic.encode() if partition.namespace_ids else None
        )
        known = self._epochs.known(partition)
        if known is None:
            return None
        carried = self._epochs.carried(known)
        self._nonce += 1
        rest = b"%b$8\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
            *(caller, self._nonce.to_bytes(8, "big"), len(numbers), numbers, len(blob), blob, channel),
        )
        until_s, pause_s = 0.0, FIRST_PAUSE_S
        while True:
            reply = self._tried(head, carried, rest)
            if reply.__class__ is bytes:
                break
            if reply is not None and not until_s:
                return None  # an error, or no connection: nothing was done
            if str(reply).startswith("NOSCRIPT"):
                head = self._head(partition, policy_version, with_source=True)[0]
                continue
            # The call may have taken effect. Repeat it with the same nonce, so that the store answers from memory.
            now_s = monotonic()
            until_s = until_s or now_s + self._patience_s
            if now_s + pause_s > until_s:
                if self._calls.hook.outcomes is not None:
                    self._report(partition, item, None)
                raise UnknownOutcome()
            sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        status, now_ms, _, extra, packed, answer = read_reply(reply)
        if status:
            return None
        n = codec.unpack_numbers(packed)
        [(outcome, final)] = codec.decode_sent_anywhere([item], n, answer)
        if not final:
            return None
        if outcome.code in STORED:
            self._epochs.saw(partition, outcome.version, now_ms)
        if extra & 1:
            self._unlisted(partition)
        if self._calls.hook.outcomes is not None:
            self._report(partition, item, outcome)
        return outcome

    def _tried(self, head: bytes, carried: Carried, rest: bytes) -> Any:
        """The reply, which may be an error. None: the call may have been sent, and no reply came."""
        expected = self._clock.expectation()
        connected = self._socket or self._connect()
        if connected is None or not expected[0]:
            return ConnectionError("there is no connection")
        try:
            words = expectation(expected, carried)
            return self._asked(connected, b"%b$%d\r\n%b\r\n%b" % (head, len(words), words, rest))
        except (OSError, hiredis.HiredisError):
            return None

    def _asked(self, connected: socket.socket, call: bytes) -> Any:
        """The reply. On any exception the connection is closed, because the next call would read this call's reply."""
        reader = self._reader
        try:
            connected.sendall(call)
            while (reply := reader.gets()) is _MORE:
                data = self._read(connected)
                if not data:
                    raise ConnectionResetError("the store closed the connection")
                reader.feed(data)
        except BaseException:  # including Ctrl-C, or a signal handler that raises
            self._end()
            raise
        return reply

    def _read(self, connected: socket.socket) -> bytes:
        """Read what has arrived. A nearby store answers faster than a thread can sleep and wake up. So this polls for a
        while around the usual reply time before the thread blocks."""
        begun_s = perf_counter()
        data = self._looked_for(connected) or connected.recv(READ_BYTES)
        self._usual_s += (perf_counter() - begun_s - self._usual_s) / 16
        return data

    def _looked_for(self, connected: socket.socket) -> bytes:
        """Poll for a reply and return its bytes; empty: nothing yet."""
        if self._usual_s >= FAR_S or isinstance(connected, ssl.SSLSocket):  # TLS sockets accept no flags
            return b""
        if self._usual_s > SOON_S:  # sleep until shortly before the usual time
            select([connected], (), (), self._usual_s - SOON_S / 2)
        until_s = perf_counter() + LOOKING_S
        while perf_counter() < until_s:
            try:
                return connected.recv(READ_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass
        return b""

    def _head(self, partition: Partition, policy_version: int, with_source: bool = False) -> tuple[bytes, bytes, bytes]:
        """The encoded parts that all sends to a partition share: before the time, between it and the nonce, the end."""
        before, caller, after = self._calls.single_send_words(partition, policy_version, with_source)
        head = b"*%d\r\n%b" % (len(before) + 6 + len(after), pieces((*before, "")))  # 6: times, caller, nonce, job
        made = (head, pieces((caller,)), pieces(after))
        if not with_source:
            if len(self._heads) >= MOST_HEADS:
                self._heads.clear()
            self._heads[partition, policy_version] = made
        return made

    def _connect(self) -> socket.socket | None:
        """Connect with redis-py, which handles addresses and passwords. None: the store cannot be reached now."""
        connection: Any = blocking_connection(self._url, self._tls, self._reply_timeout_s)
        try:
            connection.connect()
        except (RedisError, OSError, BadCertificate):
            return None
        self._connection, self._socket = connection, connection._sock
        # Use the kernel's timeout. With Python's, every send and read would cost an extra poll.
        connection._sock.settimeout(None)
        whole_s, rest_s = divmod(self._reply_timeout_s, 1)
        limit = struct.pack("ll", int(whole_s), int(rest_s * 1e6))
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        return self._socket

    def _end(self) -> None:
        connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            connection.disconnect()
