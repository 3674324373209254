"""Single calls of each protocol as the load generator makes them: the requests of a send, a pull and an ack, and what
their answers say. Standard library only, because load.py runs without site packages.

    native      POST /v1/topics/TOPIC/jobs, pull, ack
    camellia    sendMsg, pullMsg, ackMsg as forms
    ouqiang     push, pop, finish
    beanstalkd  put, reserve, delete; not HTTP, for the comparison in bench/peers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Orders = dict[str, Any]
NewId = Callable[[], int]


class Native:
    """The native API."""

    content_type = "application/json"

    def __init__(self, orders: Orders) -> None:
        topic = orders["topic"]
        self.paths = {"send": f"/v1/topics/{topic}/jobs", "pull": f"/v1/topics/{topic}/pull"}
        self.paths["ack"] = f"/v1/topics/{topic}/ack"
        self.pull = b'{"max":1}'
        body = b'"' + b"x" * max(orders["body_bytes"] - 2, 0) + b'"'
        self._job = b'{"id":"%%032x","delay_ms":%d,"body":%b}' % (orders["delay_ms"][0], body)

    def send(self, number: int) -> bytes:
        return self._job % number

    def is_sent(self, status: int, text: bytes) -> bool:
        return status == 201

    def ack(self, text: bytes) -> bytes:
        """The ack of the job in the answer to a pull; empty if there is none."""
        at = text.find(b'{"id":"') + 7
        if at < 7:
            return b""
        lease_at = text.find(b'"lease":"', at) + 9
        leased = text[at : text.find(b'"', at)], text[lease_at : text.find(b'"', lease_at)]
        return b'{"jobs":[{"id":"%b","lease":"%b"}]}' % leased

    def is_acked(self, status: int, text: bytes) -> bool:
        return status == 200 and b'"result":"acked"' in text


class Camellia(Native):
    """Forms, with ids of the sender."""

    content_type = "application/x-www-form-urlencoded"

    def __init__(self, orders: Orders) -> None:
        topic = orders["topic"].encode()
        names = {"send": "sendMsg", "pull": "pullMsg", "ack": "ackMsg"}
        self.paths = {name: f"/camellia/delayQueue/{path}" for name, path in names.items()}
        self.pull = b"topic=%b&batch=1" % topic
        self._topic = topic
        values = topic, orders["delay_ms"][0], b"x" * (orders["body_bytes"] - 2)
        self._job = b"topic=%b&msgId=%%032x&delayMillis=%d&msg=%b" % values

    def is_sent(self, status: int, text: bytes) -> bool:
        return status == 200 and b'"code":200' in text

    def ack(self, text: bytes) -> bytes:
        at = text.find(b'"msgId":"') + 9
        return b"topic=%b&msgId=%b&ack=true" % (self._topic, text[at : text.find(b'"', at)]) if at >= 9 else b""

    def is_acked(self, status: int, text: bytes) -> bool:
        return status == 200 and b'"code":200' in text


class Ouqiang(Native):
    """JSON, with ids that belong to no topic and delays in seconds."""

    def __init__(self, orders: Orders) -> None:
        topic = orders["topic"].encode()
        self.paths = {"send": "/push", "pull": "/pop", "ack": "/finish"}
        self.pull = b'{"topic":"%b"}' % topic
        values = topic, max(1, orders["delay_ms"][0] // 1000), b"x" * (orders["body_bytes"] - 2)
        self._job = b'{"topic":"%b","id":"%%032x","delay":%d,"ttr":60,"body":"%b"}' % values

    def is_sent(self, status: int, text: bytes) -> bool:
        return status == 200 and b'"code":0' in text

    def ack(self, text: bytes) -> bytes:
        at = text.find(b'"id":"') + 6
        return b'{"id":"%b"}' % text[at : text.find(b'"', at)] if at >= 6 else b""

    def is_acked(self, status: int, text: bytes) -> bool:
        return status == 200 and b'"code":0' in text


class Beanstalkd(Native):
    """Lines of text. What is asked is the whole request, and an answer counts as a status."""

    content_type = ""

    def __init__(self, orders: Orders) -> None:
        self.paths = {}
        self.pull = b"reserve-with-timeout 10\r\n"
        size = orders["body_bytes"]
        self._job = b"put 1024 %d 60 %d\r\n%b\r\n" % (orders["delay_ms"][0] // 1000, size, b"x" * size)

    def send(self, number: int) -> bytes:
        return self._job

    def is_sent(self, status: int, text: bytes) -> bool:
        return text.startswith(b"INSERTED")

    def ack(self, text: bytes) -> bytes:
        return b"delete %b\r\n" % text.split(b" ", 2)[1] if text.startswith(b"RESERVED") else b""

    def is_acked(self, status: int, text: bytes) -> bool:
        return text == b"DELETED\r\n"


PROTOCOLS: dict[str, type[Native]] = {
    "native": Native,
    "camellia": Camellia,
    "ouqiang": Ouqiang,
    "beanstalkd": Beanstalkd,
}
