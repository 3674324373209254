"""The load generator's requests: every kind of work can be asked, so that no row of the benchmark rots unseen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from bench.loading import WORKS, Orders

BENCH = Path(__file__).parents[3] / "bench"
SINGLE = ("send", "pull", "ack", "life")
CASES = [("native", work) for work in WORKS] + [
    (protocol, work) for protocol in ("camellia", "ouqiang", "beanstalkd") for work in SINGLE
]
ANSWERS = {
    "native": {
        "send": (201, b'{"id":"a","result":"created"}'),
        "pull": (200, b'{"jobs":[{"id":"a","lease_until_ms":1,"due_at_ms":1,"lease":"l"}]}'),
        "ack": (200, b'{"results":[{"id":"a","result":"acked"}]}'),
        "set": (200, b"+OK\r\n"),
    },
    "camellia": {
        "send": (200, b'{"code":200,"msg":"success"}'),
        "pull": (200, b'{"code":200,"delayMsgList":[{"msgId":"a"}]}'),
        "ack": (200, b'{"code":200}'),
    },
    "ouqiang": {
        "send": (200, b'{"code":0,"data":null}'),
        "pull": (200, b'{"code":0,"data":{"id":"a","body":"x"}}'),
        "ack": (200, b'{"code":0}'),
    },
    "beanstalkd": {
        "send": (200, b"INSERTED 1\r\n"),
        "pull": (200, b"RESERVED 1 2\r\nxx\r\n"),
        "ack": (200, b"DELETED\r\n"),
    },
}


@pytest.fixture(scope="module")
def load() -> Any:
    """The program, which is started by its path and imports its neighbours."""
    sys.path.insert(0, str(BENCH))
    try:
        import load
    finally:
        sys.path.remove(str(BENCH))
    return load


def orders_of(tmp_path: Path, protocol: str, work: str) -> dict[str, Any]:
    acks = tmp_path / "acks"
    acks.write_text(json.dumps(["first", "second", "third"]))
    return msgspec.to_builtins(Orders(work, protocol=protocol, port=1, count=2, jobs_per_call=2, acks=str(acks)))


@pytest.mark.parametrize(("protocol", "work"), CASES)
def test_every_work_asks_and_counts_what_is_answered(
    load: ModuleType, tmp_path: Path, protocol: str, work: str
) -> None:
    orders = orders_of(tmp_path, protocol, work)
    tally = load.Tally(orders["count"])
    wire = load.WIRES.get(work, load.WIRES.get(protocol, load.Http))(orders)
    conversation = load.conversations(orders, tally, {})()
    asked = next(conversation)
    for _ in range(12):
        operation, body = asked
        request = wire.request(operation, body)
        if isinstance(wire, load.Http):
            head, _, sent = request.partition(b"\r\n\r\n")
            assert head.startswith(b"POST /")
            assert head.endswith(b"Content-Length: %d" % len(sent))
        status, text = ANSWERS[protocol][operation]
        if work == "bulk":
            text = text * 2
        try:
            asked = conversation.send((status, text))
        except StopIteration:
            break
    assert (tally.errors, tally.first_error) == (0, "")
    assert tally.done >= 1


def test_a_refusal_is_counted_whatever_the_protocol(load: ModuleType, tmp_path: Path) -> None:
    for protocol in ANSWERS:
        for work in SINGLE:
            tally = load.Tally(1)
            conversation = load.conversations(orders_of(tmp_path, protocol, work), tally, {})()
            next(conversation)
            with pytest.raises(StopIteration):
                conversation.send((503, b"no"))
            assert (protocol, work, tally.done, tally.errors) == (protocol, work, 0, 1)


def test_sends_at_a_steady_rate_are_held_until_their_time(load: ModuleType) -> None:
    sent: list[bytes] = []

    class Socket:
        def send(self, request: bytes) -> int:
            sent.append(request)
            return len(request)

        def recv(self, size: int) -> bytes:
            raise AssertionError

    connection = load.Connection(Socket(), (None for _ in ()))
    pace = load.Pace(0.001, load.Lines({}))
    for name in (b"1", b"2"):
        pace.start(connection, ("send", name))
    pace.start(connection, ("pull", b"pull"))
    assert sent == [b"pull"]
    left_s = pace.release()
    assert sent == [b"pull", b"1"]
    assert 0 < left_s <= 1000


def test_the_company_of_the_crowd_row_can_send(load: ModuleType) -> None:
    sys.path.insert(0, str(BENCH))
    try:
        import company
    finally:
        sys.path.remove(str(BENCH))
    request: bytes = company.send(9277, "crowd")
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/topics/crowd/jobs HTTP/1.1\r\n")
    assert head.endswith(b"Content-Length: %d" % len(body))
