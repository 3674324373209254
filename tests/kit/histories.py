"""Small histories, written by hand. Times are in ms; the job is always `t/a`, unless it is an item or a group."""

from __future__ import annotations

from dueline.testing import history as h

MS = 1_000_000
BODY, OTHER = h.digest_of(b"body"), h.digest_of(b"other")
OK, FAIL, INFO = h.Outcome.OK, h.Outcome.FAIL, h.Outcome.INFO
JOB = ("t", "a")
DONE = {JOB: h.FinalJob("done", 1)}


def at(invoke_ms: float, complete_ms: float, outcome=OK, code=""):
    return {
        "topic": "t",
        "id": "a",
        "invoke_ns": int(invoke_ms * MS),
        "complete_ns": int(complete_ms * MS),
        "outcome": outcome,
        "code": code,
    }


def send(
    invoke_ms,
    complete_ms,
    outcome=OK,
    *,
    delay_ms=0,
    digest=BODY,
    result=None,
    max_attempts=10,
    code="",
    replaces=False,
):
    created = "replaced" if replaces else "created"
    word = result if result is not None else (created if outcome is OK else "")
    rest = {"delay_ms": delay_ms, "digest": digest, "result": word, "max_attempts": max_attempts, "replaces": replaces}
    return h.Send(**at(invoke_ms, complete_ms, outcome, code), **rest)


def deliver(invoke_ms, complete_ms, number=1, *, lease_ms=1000, digest=BODY, attempt=None, lease=None):
    return h.Deliver(
        **at(invoke_ms, complete_ms),
        lease=lease or f"L{number}",
        lease_ms=lease_ms,
        delivery=number,
        attempt=attempt or number,
        digest=digest,
    )


def ack(invoke_ms, complete_ms, number=1, outcome=OK, code=""):
    return h.Ack(**at(invoke_ms, complete_ms, outcome, code), lease=f"L{number}")


def release(invoke_ms, complete_ms, number=1, outcome=OK, code="", **rest):
    return h.Release(**at(invoke_ms, complete_ms, outcome, code), lease=f"L{number}", **rest)


def extend(invoke_ms, complete_ms, number=1, outcome=OK, code="", lease_ms=1000):
    return h.Extend(**at(invoke_ms, complete_ms, outcome, code), lease=f"L{number}", lease_ms=lease_ms)


def cancel(invoke_ms, complete_ms, outcome=OK, code=""):
    return h.Cancel(**at(invoke_ms, complete_ms, outcome, code))


def move(invoke_ms, complete_ms, delay_ms, outcome=OK):
    return h.Move(**at(invoke_ms, complete_ms, outcome), delay_ms=delay_ms)


def kept(state, attempts=0, reason=None):
    return {JOB: h.FinalJob(state, attempts, reason)}


def revive(invoke_ms, complete_ms, outcome=OK, delay_ms=0, max_attempts=None):
    return h.Revive(**at(invoke_ms, complete_ms, outcome), delay_ms=delay_ms, max_attempts=max_attempts)


def append(invoke_ms, complete_ms, item, outcome=OK, *, group="g", key="k", delay_ms=0, max_items=1000):
    common = {**at(invoke_ms, complete_ms, outcome), "id": item}
    group = group if outcome is OK else ""
    return h.Append(**common, key=key, digest=item, delay_ms=delay_ms, max_items=max_items, group=group)


def group_delivery(invoke_ms, complete_ms, items, number=1, *, group="g", key="k", lease_ms=1000):
    common = {**at(invoke_ms, complete_ms), "id": group}
    numbers = {"lease": f"{group}{number}", "lease_ms": lease_ms, "delivery": number, "attempt": number}
    return h.Deliver(**common, **numbers, digest="", items=tuple(items), merge_key=key)


def group_ack(invoke_ms, complete_ms, number=1, outcome=OK, *, group="g"):
    return h.Ack(**{**at(invoke_ms, complete_ms, outcome), "id": group}, lease=f"{group}{number}")
