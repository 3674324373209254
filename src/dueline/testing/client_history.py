"""Recorded clients for your own tests: a history of what they did and saw, checked against the server's guarantees.

    history = History()
    client = history.watch(server.client())
    client.send("orders", {"order": 7}, id="o-7")
    server.kill(); server.start()
    client.ack(*client.pull("orders"))
    history.check()                        # raises Broken, with the timeline of every job that violates a guarantee

Works with a real server (real time) or with a VirtualQueue (virtual time), but not with both in one history. Give every
job that replaces another, and every item of a merge group, a body of its own: that is how the check tells them apart.
"""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

import msgspec
from msgspec import UnsetType

from ..api.answers import Job, LeasedJob, Outcome, Sent
from ..api.requests import Merge, NewJob
from ..client import calls
from ..client.client import Client
from ..client.errors import DuelineApiError
from ..client.sending import SendOptions, new_job
from ..client.times import Duration, duration_ms
from ..engine.policy import DEFAULT_ATTEMPTS
from . import history as h
from .checker import Report, check
from .local_client import LocalClient

T = TypeVar("T")


class Broken(AssertionError):
    """The history of a test violates a guarantee."""


class History(h.Recorder):
    """What all watched clients did and saw. `judged`: whether it has been checked."""

    def __init__(self) -> None:
        super().__init__()
        self.judged = False
        self._clients: list[Client] = []
        self._topics: dict[tuple[int, str], None] = {}
        self._ticks = itertools.count(1)
        self._now_ns: Callable[[], int] | None = None

    def watch(self, client: Client, name: str = "") -> WatchedClient:
        """Wrap a client so that its calls are recorded. All clients of one history must use the same server."""
        virtual = isinstance(client, LocalClient)
        if self._clients and isinstance(self._clients[0], LocalClient) is not virtual:
            raise ValueError("a history has one clock: that of a real server or of a virtual queue, not both")
        if self._now_ns is None:
            self._now_ns = client.now_ns if isinstance(client, LocalClient) else time.monotonic_ns
        self._clients.append(client)
        return WatchedClient(self, client, name or f"client-{len(self._clients)}")

    fault = h.Recorder.fault  # named here because users call it: the reference lists what a class defines

    def report(self) -> Report:
        """Read the final state from the server and check the history."""
        self.judged = True
        final: h.Final = {}
        for place, topic in self._topics:
            jobs = self._clients[place].list_jobs(topic)
            final |= {(topic, job.id): h.FinalJob(job.state, job.attempts, job.reason) for job in jobs}
        return check(self.events, final)

    def check(self) -> Report:
        """Return the report, or raise Broken if a guarantee was violated."""
        report = self.report()
        if not report.ok:
            jobs = dict.fromkeys((violation.topic, violation.id) for violation in report.violations)
            lines = [str(violation) for violation in report.violations]
            lines += [h.explain(self.events, topic, id) for topic, id in jobs]
            raise Broken("\n".join(lines))
        return report

    def now_ns(self) -> int:
        """The history's clock. Virtual time stands still during calls, so its last digits count the calls instead."""
        return time.monotonic_ns() if self._now_ns is None else self._now_ns() + next(self._ticks)

    def saw(self, client: Client, topic: str) -> None:
        self._topics[next(i for i, one in enumerate(self._clients) if one is client), topic] = None


class WatchedClient:
    """The calls of a Client on single jobs, each recorded."""

    def __init__(self, history: History, client: Client, name: str) -> None:
        self.client = client
        self._history = history
        self._name = name

    def send(self, topic: str, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """As in Client. The items of a merge group must be JSON."""
        job = new_job(body, **options)
        if job.merge is not None:
            return self._append(topic, job, job.merge)
        options["id"] = job.id

        def note(common: h.Common, sent: Sent | None) -> list[h.AnyEvent]:
            return [
                h.Send(
                    **common,
                    delay_ms=_delay_ms(job),
                    digest=h.digest_of(_data(job)),
                    result="" if sent is None else sent.result,
                    max_attempts=_max_attempts(job),
                    replaces=job.on_conflict == "replace",
                )
            ]

        return self._watched(topic, job.id or "", lambda: self.client.send(topic, body, **options), note)

    def _append(self, topic: str, job: NewJob, merge: Merge) -> Sent:
        if job.body_base64 is not None:
            raise ValueError("items that are not JSON are not checked: send them with the client itself")
        job = calls.named(job)
        merge = job.merge or merge

        def note(common: h.Common, sent: Sent | None) -> list[h.AnyEvent]:
            return [
                h.Append(
                    **common,
                    key=merge.key,
                    digest=h.digest_of(_data(job)),
                    delay_ms=_group_delay_ms(job, merge),
                    max_items=merge.max_items or 1,
                    result="" if sent is None else sent.result,
                    group="" if sent is None else sent.id,
                    max_attempts=_max_attempts(job),
                )
            ]

        call = calls.send(topic, job)
        return self._watched(topic, merge.item_id or "", lambda: self.client.call(call).value, note)

    def pull(self, topic: str, max: int = 1, lease: Duration = "30s", wait: Duration = 0) -> tuple[LeasedJob, ...]:
        """As in Client, for one topic and with an explicit lease."""
        lease_ms = duration_ms(lease, "lease")

        def note(common: h.Common, jobs: tuple[LeasedJob, ...] | None) -> list[h.AnyEvent]:
            if not jobs:
                return [h.Pull(**common)]
            return [
                h.Deliver(
                    **_about(common, job.id),
                    lease=job.lease,
                    lease_ms=lease_ms,
                    delivery=job.delivery,
                    attempt=job.attempt,
                    digest=h.digest_of(job.data or b"") if not job.items else "",
                    items=tuple(h.digest_of(bytes(item)) for item in job.items) if job.items else None,
                    merge_key=job.merge_key or "",
                )
                for job in jobs
            ]

        return self._watched(topic, "", lambda: self.client.pull(topic, max, lease, wait), note)

    def ack(self, job: LeasedJob) -> Outcome:
        """As in Client."""
        return self._watched(
            job.topic, job.id, lambda: self.client.ack(job), lambda common, _: [h.Ack(**common, lease=job.lease)]
        )

    def release(
        self, job: LeasedJob, delay: Duration = 0, error: str | None = None, count: bool = True, discard: bool = False
    ) -> Outcome:
        """As in Client, with an explicit delay."""

        def note(common: h.Common, done: Outcome | None) -> list[h.AnyEvent]:
            result = "" if done is None else done.result or ""
            delay_ms = duration_ms(delay)
            return [h.Release(**common, lease=job.lease, delay_ms=delay_ms, count=count, result=result)]

        return self._watched(job.topic, job.id, lambda: self.client.release(job, delay, error, count, discard), note)

    def extend(self, job: LeasedJob, lease: Duration) -> Outcome:
        """As in Client."""

        def note(common: h.Common, _: Outcome | None) -> list[h.AnyEvent]:
            return [h.Extend(**common, lease=job.lease, lease_ms=duration_ms(lease, "lease"))]

        return self._watched(job.topic, job.id, lambda: self.client.extend(job, lease), note)

    def cancel(self, topic: str, id: str) -> Outcome:
        """As in Client."""
        return self._watched(topic, id, lambda: self.client.cancel(topic, id), lambda common, _: [h.Cancel(**common)])

    def reschedule(self, topic: str, id: str, delay: Duration) -> Job:
        """As in Client, but only by a delay, because the history cannot compare the server's clock with its own."""

        def note(common: h.Common, _: Job | None) -> list[h.AnyEvent]:
            return [h.Move(**common, delay_ms=duration_ms(delay))]

        return self._watched(topic, id, lambda: self.client.reschedule(topic, id, delay), note)

    def fire(self, topic: str, id: str) -> Outcome:
        """As in Client."""
        return self._watched(
            topic, id, lambda: self.client.fire(topic, id), lambda common, _: [h.Move(**common, delay_ms=0)]
        )

    def revive(self, topic: str, id: str, delay: Duration = 0, max_attempts: int | None = None) -> Outcome:
        """As in Client."""

        def note(common: h.Common, _: Outcome | None) -> list[h.AnyEvent]:
            return [h.Revive(**common, delay_ms=duration_ms(delay), max_attempts=max_attempts)]

        return self._watched(topic, id, lambda: self.client.revive(topic, id, delay, max_attempts), note)

    def _watched(
        self, topic: str, id: str, call: Callable[[], T], note: Callable[[h.Common, T | None], list[h.AnyEvent]]
    ) -> T:
        """Make the call and record what is known about it afterwards."""
        self._history.saw(self.client, topic)
        begin_ns = self._history.now_ns()
        try:
            value = call()
        except DuelineApiError as error:
            common = self._history.common(self._name, topic, id, begin_ns, h.outcome_of(error), error.code)
            self._history.add(*note(common, None))
            raise
        self._history.add(*note(self._history.common(self._name, topic, id, begin_ns, h.Outcome.OK), value))
        return value


def _about(common: h.Common, id: str) -> h.Common:
    common = common.copy()
    common["id"] = id
    return common


def _delay_ms(job: NewJob) -> int:
    """The requested delay; 0 for an absolute time, which the history cannot compare with its own clock."""
    return job.delay_ms or 0 if job.delay is None else duration_ms(job.delay)


def _group_delay_ms(job: NewJob, merge: Merge) -> int:
    """How long after its opening a group is certainly not due; 0 if the topic decides."""
    if merge.max_items is None or merge.max_wait_ms is None:
        return 0
    return min(merge.max_wait_ms, _delay_ms(job) if merge.quiet_ms is None else merge.quiet_ms)


def _max_attempts(job: NewJob) -> int | None:
    return DEFAULT_ATTEMPTS if isinstance(job.max_attempts, UnsetType) else job.max_attempts


def _data(job: NewJob) -> bytes:
    if job.body_base64 is not None:
        return base64.b64decode(job.body_base64)
    return bytes(job.body) if isinstance(job.body, msgspec.Raw) else b""
