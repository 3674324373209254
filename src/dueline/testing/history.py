"""A record of what clients did and saw: the input of every crash test's checks. No network here.

A history is a flat list of the events of one run. Each event is one client operation on one job, with the moment of its
invocation and of its answer, both on ONE monotonic clock (all clients of a run are on one host).

An operation has one of three outcomes:

    ok     the server answered that it was done
    fail   the server answered that it was certainly not done (4xx, 503 with `done: false`); `code` says why
    info   unknown: timeout, lost connection, 503 unknown_outcome. It may have been done, even after `complete_ns`

`dueline.testing.checker` checks a history; `explain` prints the timeline of one job. On disk a history is JSON lines.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import TypedDict

import msgspec

from ..client.errors import DuelineApiError, ServerFault, UnknownOutcome


class Outcome(StrEnum):
    """What the client knows about an operation when it ends."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation of one client. `id` is empty if the event is not about one job (a pull that returned nothing)."""

    topic: str
    id: str
    invoke_ns: int
    complete_ns: int
    outcome: Outcome
    client: str = ""
    code: str = ""  # the error code of a refusal, or what broke

    @property
    def job(self) -> tuple[str, str]:
        return (self.topic, self.id)


class Common(TypedDict):
    """The fields that every event has, for code that builds events."""

    topic: str
    id: str
    invoke_ns: int
    complete_ns: int
    outcome: Outcome
    client: str
    code: str


class Send(Event, frozen=True, kw_only=True, tag_field="op", tag="send"):
    """A send. `result` is the server's answer (created, kept, replaced) if it is ok. `digest` is `digest_of` the body.
    `replaces`: it takes the place of a job with its id."""

    delay_ms: int
    digest: str
    result: str = ""
    max_attempts: int | None = None
    replaces: bool = False


class Append(Event, frozen=True, kw_only=True, tag_field="op", tag="append"):
    """A send that joins a merge group; `id` is the id of the item. `digest` is `digest_of` the item. `delay_ms`: the
    group is not due earlier than this after the send that opened it, unless it has `max_items`. `group`: the id of the
    group, if it is ok."""

    key: str
    digest: str
    delay_ms: int = 0
    max_items: int = 1000
    result: str = ""  # created | appended | kept
    group: str = ""
    max_attempts: int | None = None


class Deliver(Event, frozen=True, kw_only=True, tag_field="op", tag="deliver"):
    """One job in the answer to a pull; the times are the pull's. Always ok, because a lost answer is a `Pull`. `items`:
    the digests of the items of a merge group."""

    lease: str
    lease_ms: int
    delivery: int
    attempt: int
    digest: str
    items: tuple[str, ...] | None = None
    merge_key: str = ""


class Pull(Event, frozen=True, kw_only=True, tag_field="op", tag="pull"):
    """A pull that returned nothing, was refused, or lost its answer (it may then have leased jobs)."""


class Ack(Event, frozen=True, kw_only=True, tag_field="op", tag="ack"):
    lease: str


class Release(Event, frozen=True, kw_only=True, tag_field="op", tag="release"):
    """A release. `delay_ms` is the requested delay. With `count` False it costs no attempt."""

    lease: str
    delay_ms: int = 0
    count: bool = True
    result: str = ""  # released | dead


class Extend(Event, frozen=True, kw_only=True, tag_field="op", tag="extend"):
    lease: str
    lease_ms: int


class Cancel(Event, frozen=True, kw_only=True, tag_field="op", tag="cancel"):
    pass


class Move(Event, frozen=True, kw_only=True, tag_field="op", tag="move"):
    """A reschedule, or a fire (delay 0): the job is now due `delay_ms` after this call."""

    delay_ms: int


class Revive(Event, frozen=True, kw_only=True, tag_field="op", tag="revive"):
    """A dead job that is live again, due `delay_ms` after this call. `max_attempts`: a new limit, if it has one."""

    delay_ms: int = 0
    max_attempts: int | None = None


class Fault(Event, frozen=True, kw_only=True, tag_field="op", tag="fault"):
    """A fault that the test injected; `code` names it. It belongs to no job and is shown in every timeline."""


AnyEvent = Send | Append | Deliver | Pull | Ack | Release | Extend | Cancel | Move | Revive | Fault


class FinalJob(msgspec.Struct, frozen=True):
    """One job of the final dump (list API), with the fields that the checker needs. `items`: as in a delivery."""

    state: str
    attempts: int
    reason: str | None = None
    items: tuple[str, ...] | None = None


Final = dict[tuple[str, str], FinalJob]


def digest_of(body: bytes) -> str:
    """A short digest of a body, to detect any change in it."""
    return blake2b(body, digest_size=9).hexdigest()


class Recorder:
    """Collects the events of a run in the order of their completion. One per run; not thread-safe."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []

    def now_ns(self) -> int:
        """The history's only clock."""
        return time.monotonic_ns()

    def add(self, *events: AnyEvent) -> None:
        self.events.extend(events)

    def fault(self, what: str, invoke_ns: int | None = None) -> None:
        """Record a fault that the test injects now, or that began at `invoke_ns`. Timelines show it between events."""
        now_ns = self.now_ns()
        begin_ns = now_ns if invoke_ns is None else invoke_ns
        self.add(Fault(topic="", id="", invoke_ns=begin_ns, complete_ns=now_ns, outcome=Outcome.OK, code=what))

    def common(self, client: str, topic: str, id: str, begin_ns: int, outcome: Outcome, code: str = "") -> Common:
        """The common fields of an operation that ends now."""
        return {
            "topic": topic,
            "id": id,
            "invoke_ns": begin_ns,
            "complete_ns": self.now_ns(),
            "outcome": outcome,
            "client": client,
            "code": code,
        }


def outcome_of(error: DuelineApiError) -> Outcome:
    """What a client knows about an operation that ended with this error."""
    return Outcome.INFO if isinstance(error, UnknownOutcome | ServerFault) else Outcome.FAIL


class _FinalLine(msgspec.Struct, tag_field="op", tag="final"):
    topic: str
    id: str
    kept: FinalJob


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent | _FinalLine] = msgspec.json.Decoder(AnyEvent | _FinalLine)


def write(path: Path, events: Iterable[AnyEvent], final: Final | None = None) -> None:
    """Write a history as JSON lines, followed by the final dump if there is one."""
    with path.open("wb") as file:
        for event in events:
            file.write(_encoder.encode(event) + b"\n")
        for (topic, id), kept in (final or {}).items():
            file.write(_encoder.encode(_FinalLine(topic, id, kept)) + b"\n")


def read(path: Path) -> tuple[list[AnyEvent], Final]:
    """Read what `write` wrote."""
    events: list[AnyEvent] = []
    final: Final = {}
    with path.open("rb") as file:
        for line in file:
            entry = _decoder.decode(line)
            if isinstance(entry, _FinalLine):
                final[(entry.topic, entry.id)] = entry.kept
            else:
                events.append(entry)
    return events, final


def explain(events: Iterable[AnyEvent], topic: str, id: str, final: Final | None = None) -> str:
    """One job's timeline, one event per line, with the faults of the run in between. Times are ms since the job's first
    event."""
    mine = [e for e in events if isinstance(e, Fault) or e.job == (topic, id)]
    own = [e for e in mine if not isinstance(e, Fault)]
    if not own:
        return f"{topic}/{id}: no event"
    begin_ns = min(e.invoke_ns for e in own)
    end_ns = max(e.complete_ns for e in own)
    lines = [f"{topic}/{id}"]
    for event in sorted(mine, key=lambda e: e.invoke_ns):
        if isinstance(event, Fault) and not begin_ns <= event.complete_ns <= end_ns:
            continue
        lines.append(_timeline_line(event, begin_ns))
    if final is not None:
        kept = final.get((topic, id))
        lines.append(f"  at the end: {'missing' if kept is None else _kept_words(kept)}")
    return "\n".join(lines)


def _timeline_line(event: AnyEvent, begin_ns: int) -> str:
    begin_ms, end_ms = (event.invoke_ns - begin_ns) / 1e6, (event.complete_ns - begin_ns) / 1e6
    span = f"  {begin_ms:11.3f} .. {end_ms:11.3f} ms"
    if isinstance(event, Fault):
        return f"{span}  !! {event.code}"
    name = type(event).__name__.lower()
    fields: dict[str, object] = msgspec.to_builtins(event)  # without what has its default
    shown = {k: v for k, v in fields.items() if k not in _COMMON and v not in ("", None)}
    words = " ".join(f"{key}={value}" for key, value in shown.items())
    return f"{span}  {name:8} {event.outcome.value:4} {words}".rstrip()


_COMMON = {"op", "topic", "id", "invoke_ns", "complete_ns", "outcome"}


def _kept_words(kept: FinalJob) -> str:
    reason = f" ({kept.reason})" if kept.reason else ""
    return f"{kept.state}{reason}, attempts {kept.attempts}"
