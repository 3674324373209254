"""The store's memory per pending job, in bytes beyond its body and twice its id.

It is averaged over many lengths, because an allocator works in steps and a single pair of lengths may fit well or
badly. Two single cases (32-digit hex ids, bodies of 100 and of 1,000 bytes) are measured too, for sizing. Each uses a
fresh store.
"""

from __future__ import annotations

import time

import msgspec

from ..broken import Broken
from ..loading import Orders, run
from ..report import Line, Target, at_most
from ..servers import StoreConnection, server
from ..sizes import Sizes

STILL_S = 1.0
WAIT_S = 60.0


class _Case(msgspec.Struct, frozen=True):
    what: str
    id: str
    body_bytes: int
    target: Target | None


CASES = (
    _Case("hex ids", "hex", 0, at_most(110)),
    _Case("other ids (8..40)", "text", 0, at_most(145)),
    _Case("hex ids, bodies of 100", "hex", 100, None),
    _Case("hex ids, bodies of 1,000", "hex", 1_000, None),
)


def memory(sizes: Sizes) -> list[Line]:
    lines: list[Line] = []
    for case in CASES:
        lines += _measure(case, sizes.memory_jobs)
    return lines


def _measure(case: _Case, count: int) -> list[Line]:
    with server() as one:
        client = one.client()
        client.call("POST", "/v1/topics/bench/jobs", {"body": 1, "delay_ms": 3_600_000})
        client.close()
        store = one.store()
        used_before, rss_before = _still(store)
        done = run(
            Orders(
                "bulk",
                port=one.port,
                connections=4,
                count=count,
                id=case.id,
                body_bytes=case.body_bytes,
                delay_ms=(3_600_000, 86_400_000),
                jobs_per_call=500,
            )
        )
        used, rss = _still(store)
    if done.done != count:
        raise Broken(f"{done.done} jobs of {count} were stored")
    bodies = done.notes["body_bytes"] if done.notes else count * case.body_bytes
    ids = done.notes["id_bytes"] if done.notes else count * 32
    per_job = (used - used_before) / count
    above = per_job - (bodies + 2 * ids) / count
    # Subtract the program itself, which would be most of the resident memory of a small store.
    grown = (rss - rss_before) / (used - used_before)
    details = {
        "jobs": count, "used_per_job": per_job, "rss_per_job": (rss - rss_before) / count,
        "body_bytes": bodies / count, "id_bytes": ids / count, "whole_rss_to_used": rss / used,
    }  # fmt: skip
    note = f"{count:,} jobs; used {per_job:.0f} B, resident {(rss - rss_before) / count:.0f} B a job"
    return [
        Line(f"memory above body + 2 x id, {case.what}", above, "B", None, case.target, note, details),
        Line(
            f"resident to used, {case.what}", grown, "x", None, case.target and at_most(1.2), "both grown since empty"
        ),
    ]


def _still(store: StoreConnection) -> tuple[int, int]:
    """(used, resident) once the store is idle: no rewrite, no growing table, buffers released."""
    deadline_s = time.monotonic() + WAIT_S
    last = -1
    while time.monotonic() < deadline_s:
        store.settle()
        info = store.info()
        used, rss = int(info["used_memory"]), int(info["used_memory_rss"])
        if last >= 0 and abs(used - last) <= used // 2000:
            return used, rss
        last = used
        time.sleep(STILL_S)
    raise Broken("the store's memory did not come to rest")
