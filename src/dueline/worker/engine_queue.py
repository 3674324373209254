"""A queue on an engine in this process. It behaves like a server's native API, without HTTP.

The engine may use any store: a real one (worker.direct) or, in tests, the reference model in virtual time.
Calls are retried by the client's rules (`client.patience`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from ..client.bulk import MAX_ITEMS
from ..client.calls import Answer, Call, Leased, NewJob, refusal_error
from ..client.errors import GONE, DuelineApiError
from ..client.patience import Patience, Tries
from ..client.results import Job, LeasedJob, Outcome, Outcomes, Sent, SentItem
from ..client.sending import Policy, SendOptions, job_fields, new_job, time_fields
from ..client.times import Duration, Moment
from ..engine.commands import Pull, Send
from ..engine.commands import Sent as EngineSent
from ..engine.engine import Engine
from ..engine.errors import DuelineError
from ..engine.job import Reason
from ..engine.store import Extend, Ref, Release
from ..engine.store import Outcome as StoreOutcome
from . import views

T = TypeVar("T")

REPEATED: Call[Outcomes] = Call("POST", "", Outcomes)


class EngineQueue:
    """One namespace of an engine. Its owner starts and stops the engine."""

    def __init__(self, engine: Engine, namespace: str = "default", patience: Patience = Patience()) -> None:
        self._engine = engine
        self._namespace = views.checked_name(namespace, "namespace")
        self._patience = patience

    @property
    def url(self) -> str | None:
        return None

    @property
    def namespace(self) -> str | None:
        return self._namespace

    async def start(self) -> None:
        """The engine is started by its owner."""

    async def close(self) -> None:
        """The engine is stopped by its owner."""

    async def send(self, topic: str, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        command = views.send_command(new_job(body, **options))
        views.checked_name(topic, "topic")
        return views.sent(await self._tried(lambda: self._engine.send(self._namespace, topic, command)))

    async def send_many(self, topic: str, jobs: Iterable[NewJob]) -> list[SentItem]:
        views.checked_name(topic, "topic")
        commands = [views.send_command(job) for job in jobs]
        results: list[SentItem] = []
        for begin in range(0, len(commands), MAX_ITEMS):
            part = commands[begin : begin + MAX_ITEMS]
            try:
                found = await self._tried(lambda part=part: self._send_part(topic, part))
            except DuelineApiError as error:
                error.results = tuple(results)
                raise
            results += [views.sent_item(one.id, result) for one, result in zip(part, found, strict=True)]
        return results

    async def _send_part(self, topic: str, part: Sequence[Send]) -> list[EngineSent | DuelineError]:
        """One call to the engine. Raises the error for which a server would have answered 503."""
        results = await self._engine.send_many(self._namespace, topic, part)
        trouble = views.not_answered(results)
        if trouble is not None:
            raise trouble
        return results

    async def get(self, topic: str, id: str) -> Job:
        return views.shown(await self._tried(lambda: self._engine.get(self._namespace, topic, id)))

    async def cancel(self, topic: str, id: str, missing_ok: bool = False) -> Outcome:
        [done] = await self._tried(lambda: self._engine.cancel(self._namespace, topic, [id]))
        outcome = views.outcome(id, done, "cancelled")
        if missing_ok and outcome.error is not None and outcome.error.code in GONE:
            return outcome
        return _only(outcome)

    async def reschedule(self, topic: str, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        changes = time_fields(delay, at)
        if not changes:
            raise ValueError("give delay or at")
        patch = views.patch_command(id, changes)
        return views.shown(await self._tried(lambda: self._engine.patch(self._namespace, topic, patch)))

    async def pull(
        self, topics: Sequence[str], max: int = 1, lease_ms: int | None = None, wait_ms: int = 0
    ) -> Sequence[LeasedJob]:
        command = Pull(self._namespace, tuple(topics), max, lease_ms, wait_ms)
        call = Call("POST", "", Outcomes, wait_ms=wait_ms)
        return [views.held(job) for job in await self._tried(lambda: self._engine.pull(command), call)]

    async def ack(self, jobs: Sequence[LeasedJob | Leased]) -> list[Outcome]:
        return await self._on_leases(
            jobs,
            "acked",
            lambda topic, some: self._engine.ack(self._namespace, topic, [Ref(job.id, job.lease) for job in some]),
        )

    async def release(
        self,
        jobs: Sequence[LeasedJob | Leased],
        delay_ms: int | None = None,
        error: str | None = None,
        count: bool = True,
        discard: bool = False,
    ) -> list[Outcome]:
        dead = Reason.REJECTED if discard else None
        return await self._on_leases(
            jobs,
            "released",
            lambda topic, some: self._engine.release(
                self._namespace,
                topic,
                [Release(job.id, job.lease, delay_ms, error, count, dead) for job in some],
            ),
        )

    async def extend(self, jobs: Sequence[LeasedJob | Leased], lease_ms: int) -> list[Outcome]:
        return await self._on_leases(
            jobs,
            "extended",
            lambda topic, some: self._engine.extend(
                self._namespace, topic, [Extend(job.id, job.lease, lease_ms) for job in some]
            ),
        )

    async def propose_policy(self, topic: str, policy: Policy) -> Mapping[str, Any]:
        fields = job_fields(policy)
        patch = views.topic_patch(fields)
        views.checked_name(topic, "topic")
        view, _ = await self._tried(lambda: self._engine.set_topic(self._namespace, topic, patch))
        return {name: views.policy_value(view.policy, name) for name in fields}

    async def _on_leases(
        self,
        jobs: Sequence[LeasedJob | Leased],
        result: str,
        call: Callable[[str, Sequence[LeasedJob | Leased]], Awaitable[list[StoreOutcome]]],
    ) -> list[Outcome]:
        """One kind of call on leased jobs of any topics; the results are in the order of the jobs."""
        places: dict[str, list[int]] = {}
        for place, job in enumerate(jobs):
            places.setdefault(job.topic, []).append(place)
        found: dict[int, Outcome] = {}
        for topic, own in places.items():
            for begin in range(0, len(own), MAX_ITEMS):
                part = own[begin : begin + MAX_ITEMS]
                some = [jobs[place] for place in part]
                found.update(zip(part, await self._changed(topic, some, result, call), strict=True))
        return [found[place] for place in range(len(jobs))]

    async def _changed(
        self,
        topic: str,
        some: Sequence[LeasedJob | Leased],
        result: str,
        call: Callable[[str, Sequence[LeasedJob | Leased]], Awaitable[list[StoreOutcome]]],
    ) -> tuple[Outcome, ...]:
        tries: list[Tries] = []
        done = await self._tried(lambda: call(topic, some), tries=tries)
        outcomes = tuple(views.outcome(job.id, one, result) for job, one in zip(some, done, strict=True))
        if not tries:
            return outcomes
        return tries[0].answered(Answer(Outcomes(outcomes), b"", 200)).value.results

    async def _tried(
        self, ask: Callable[[], Awaitable[T]], call: Call[Any] = REPEATED, tries: list[Tries] | None = None
    ) -> T:
        """The result, after as many tries as patience allows. `tries` receives their state if there were several."""
        clock = asyncio.get_running_loop().time
        begin_s = clock()
        try:
            return await ask()
        except DuelineError as refused:
            error = views.api_error(refused)
        kept = Tries(self._patience, call, 0.0)
        if tries is not None:
            tries.append(kept)
        while True:
            await asyncio.sleep(kept.wait_s(error, clock() - begin_s))
            try:
                return await ask()
            except DuelineError as refused:
                error = views.api_error(refused)


def _only(outcome: Outcome) -> Outcome:
    """The result of a call on one job. Raises its error if it was refused."""
    if outcome.error is not None:
        raise _raised(outcome)
    return outcome


def _raised(outcome: Outcome) -> DuelineApiError:
    assert outcome.error is not None
    return refusal_error(outcome.error, outcome.id)
