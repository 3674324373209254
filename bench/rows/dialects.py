"""What calls of other protocols cost beside the native ones, and how late their clients get a job.

The cost is the CPU time of server and store per call, in turns with the native call on the same server.

The lateness is that of a camellia long poll and an ouqiang pop that are parked when the job is due, measured from the
earliest possible delivery (the first byte of the send plus the delay, on one clock) to the complete answer. It
includes the fsyncs of send and pull and both network directions. An earlier answer is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..broken import Broken
from ..calls import CallRounds
from ..report import Line, at_most, middle, percentile
from ..servers import Client, folder, server
from ..sizes import Sizes
from ..usage import Meter, Usage, median

CAMELLIA = "/camellia/delayQueue"
CAMELLIA_DELAY_MS = 60
OUQIANG_DELAY_S = 1  # the smallest it allows


CALLS = {
    "camellia": {"send": "sendMsg", "pull": "pullMsg", "ack": "ackMsg"},
    "ouqiang": {"send": "push", "pull": "pop", "ack": "finish"},
}


def dialects(sizes: Sizes) -> list[Line]:
    with folder() as place, server() as one:
        meter = Meter(one)
        rounds = {
            name: CallRounds(meter.run, one.port, place, list(CALLS["ouqiang"]), name) for name in ("native", *CALLS)
        }
        for number in range(sizes.cpu_rounds + 1):
            for side in rounds.values():
                side.round(number, sizes.cpu_calls)
        poll, other = one.client(), one.client()
        late = {
            "camellia long poll": [_camellia(poll, other, number) for number in range(sizes.wakeups)],
            "ouqiang pop": [_ouqiang(poll, other, number) for number in range(min(20, max(5, sizes.wakeups // 4)))],
        }
        poll.close()
        other.close()
    native = rounds.pop("native").used
    return [
        *(_cost(name, work, side.used[work], native[work]) for name, side in rounds.items() for work in side.used),
        *(_line(name, values[1:]) for name, values in late.items()),  # the first makes the topic known
    ]


def _cost(name: str, work: str, rounds: Sequence[Usage], native: Sequence[Usage]) -> Line:
    used, base = median(rounds), median(native)
    compared = [f"{part} {used.cpu_us[part]:.1f} against {base.cpu_us[part]:.1f}" for part in ("server", "store")]
    details = {"rounds_us": [one.product_us for one in rounds], "base_rounds_us": [one.product_us for one in native]}
    what, note = f"CPU of {name} {CALLS[name][work]}", f"base: native; {', '.join(compared)}"
    return Line(what, used.product_us, "us", base.product_us, at_most(1.3), note, details)


def _line(name: str, late_ms: list[float]) -> Line:
    note = f"p99 {percentile(late_ms, 0.99):.1f} ms, {len(late_ms)} jobs, early 0; from the earliest possible moment"
    return Line(f"{name}, median", middle(late_ms), "ms", None, at_most(10), note, {"late_ms": late_ms, "early": 0})


def _camellia(poll: Client, other: Client, number: int) -> float:
    poll.start("POST", f"{CAMELLIA}/longPollingMsg?topic=bench&longPollingTimeoutMillis=10000")

    def send() -> None:
        target = f"{CAMELLIA}/sendMsg?topic=bench&msg=x&msgId=m{number}&delayMillis={CAMELLIA_DELAY_MS}"
        _ok(other.call("POST", target), 200)

    late_ms, answer = _late(poll, send, CAMELLIA_DELAY_MS)
    if [msg["msgId"] for msg in answer["delayMsgList"]] != [f"m{number}"]:
        raise Broken(f"the long poll was answered {answer}")
    _ok(other.call("POST", f"{CAMELLIA}/ackMsg?topic=bench&msgId=m{number}&ack=true"), 200)
    return late_ms


def _ouqiang(poll: Client, other: Client, number: int) -> float:
    poll.start("POST", "/pop", {"topic": "bench"})

    def send() -> None:
        job = {"topic": "bench", "id": f"o{number}", "delay": OUQIANG_DELAY_S, "ttr": 60, "body": "x"}
        _ok(other.call("POST", "/push", job), 0)

    late_ms, answer = _late(poll, send, OUQIANG_DELAY_S * 1000)
    if answer["data"] != {"id": f"o{number}", "body": "x"}:
        raise Broken(f"the pop was answered {answer}")
    _ok(other.call("POST", "/finish", {"id": f"o{number}"}), 0)
    return late_ms


def _late(poll: Client, send: Callable[[], None], delay_ms: int) -> tuple[float, Any]:
    begun_s = time.perf_counter()
    send()
    status, answer = poll.finish()
    late_ms = (time.perf_counter() - begun_s) * 1000 - delay_ms
    if status != 200:
        raise Broken(f"a parked poll was answered {status}: {answer}")
    if late_ms < 0:
        raise Broken(f"a job was delivered {-late_ms:.2f} ms early")
    return late_ms, answer


def _ok(answer: dict[str, Any], code: int) -> None:
    if answer["code"] != code:
        raise Broken(f"refused: {answer}")
