"""The queue interface that a worker needs, and its implementations by URL.

    http://  https://                      a server, or several                  worker.http
    redis://  valkey://  unix:// ...       directly on a store, no server        worker.direct
    embedded:./data                        the embedded store in this process    worker.direct

All use the client's values (`LeasedJob`, `Sent`, `Outcome`) and raise the client's errors (`DuelineApiError`), so a
program switches between them by changing the URL. The default is DUELINE_URL, else the local server, as for clients and
the command line.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Unpack, runtime_checkable

from ..api.answers import Job, LeasedJob, LeasedJobs, Outcome, Schedule, Sent, SentItem
from ..api.requests import NewJob
from ..api.schedule_requests import PutSchedule
from ..client.address import addresses_of, is_server, named_url, shown, using
from ..client.calls import Leased
from ..client.sending import Policy, SendOptions
from ..client.times import Duration, Moment
from ..store_address import is_store_url, parse_store_url

EMBEDDED = "embedded:"

log = logging.getLogger("dueline.worker")


class Queue(Protocol):
    """One namespace of one queue, used from one event loop. `url` is where another process can reach the same queue;
    None if it cannot. `start` connects (so does any call before it); `close` may be called at any time."""

    @property
    def url(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...

    async def start(self) -> None:
        """Connect, retrying for as long as patience allows. Raises DuelineApiError."""
        ...

    async def close(self) -> None:
        """Disconnect. It may be called twice, and before `start`."""
        ...

    async def send(self, topic: str, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """Store a job. Options: `delay` or `at`, `id`, `on_conflict`, `merge`, and its policy; see SendOptions."""
        ...

    async def send_many(self, topic: str, jobs: Iterable[NewJob]) -> list[SentItem]:
        """Store any number of jobs made by `new_job`. Returns one result per job, in order."""
        ...

    async def get(self, topic: str, id: str) -> Job:
        """The job as it is now. Raises NotFound."""
        ...

    async def cancel(self, topic: str, id: str, missing_ok: bool = False) -> Outcome:
        """Cancel a job, even a leased one. Raises NotFound, or AlreadyDone if it has already ended. With `missing_ok`
        neither is raised; the outcome is then not `ok`."""
        ...

    async def reschedule(self, topic: str, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        """Move the due time of a job that is not leased: `delay` from now, or `at`."""
        ...

    async def pull(
        self,
        topics: Sequence[str],
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        by: str | None = None,
    ) -> Sequence[LeasedJob]:
        """Lease due jobs, waiting up to wait_ms for the first. Cancelling a pull costs no attempt: jobs that were
        already on their way are given back uncounted. `by`: the worker's name, for the history of the jobs."""
        ...

    async def ack_and_pull(
        self,
        topic: str,
        jobs: Sequence[LeasedJob | Leased],
        max: int = 1,
        lease_ms: int | None = None,
        by: str | None = None,
    ) -> LeasedJobs:
        """Complete jobs of a topic and lease due ones of it, in one call that does not wait. Cancelling it is like
        cancelling a pull; the acks may then be repeated."""
        ...

    async def ack(self, jobs: Sequence[LeasedJob | Leased]) -> list[Outcome]:
        """Complete jobs of any topics. Returns one result per job, in order."""
        ...

    async def release(
        self,
        jobs: Sequence[LeasedJob | Leased],
        delay_ms: int | None = None,
        error: str | None = None,
        count: bool = True,
        discard: bool = False,
    ) -> list[Outcome]:
        """Give jobs back, all with the same options. They are due again after `delay_ms`, or as their retry policy
        says. `count=False`: this does not count as an attempt. `discard=True` makes them dead (rejected)."""
        ...

    async def extend(self, jobs: Sequence[LeasedJob | Leased], lease_ms: int) -> list[Outcome]:
        """Extend leases to `lease_ms` from now. Returns one result per job, in order."""
        ...

    async def propose_policy(self, topic: str, policy: Policy) -> Mapping[str, Any]:
        """Propose a worker's delivery policy (`lease`, `ttl`, `max_attempts`, `retry`) for a topic. It sets fields that
        are unset or were set by a worker, but never those set by an operator. Returns these fields as the topic now has
        them, in the API's form."""
        ...

    async def schedule(self, name: str) -> Schedule:
        """A schedule as it is now. Raises NotFound."""
        ...

    async def schedules(self) -> list[Schedule]:
        """All schedules of the namespace."""
        ...

    async def put_schedule(self, name: str, request: PutSchedule) -> Schedule:
        """Create a schedule, or replace it. Raises VersionMismatch if the request names another version than it has."""
        ...

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Raises NotFound."""
        ...


@runtime_checkable
class SendsNow(Protocol):
    """A queue that accepts sends from a thread without an event loop; that thread talks to the store itself."""

    def send_now(self, topic: str, job: NewJob) -> Sent | None:
        """Send a job. None: use the normal path, with the same id, because the job may already have been stored."""
        ...


def resolved(url: str | None) -> str:
    """The URL to use (`named_url`), checked. Raises ValueError."""
    url = named_url(url)
    if is_store_url(url):
        try:
            parse_store_url(url)
        except ValueError as wrong:
            raise ValueError(f'"{shown(url)}" cannot be read: {wrong}') from None
    elif is_server(url):
        addresses_of(url)
    elif not url.startswith(EMBEDDED):
        raise ValueError(
            f'"{shown(url)}" is not a queue: use http://, redis://, valkey://, unix:// or embedded:./folder'
        )
    elif not url[len(EMBEDDED) :]:
        raise ValueError("name the folder of the embedded store, such as embedded:./dueline-data")
    return url


def connect(
    url: str | None = None, namespace: str | None = None, token: str | None = None, *, any_thread: bool = False
) -> Queue:
    """The queue at `url`. `start` or the first call connects.

    `token` is for servers. `token` and `namespace` default to DUELINE_TOKEN and DUELINE_NAMESPACE. An embedded store is
    started from the main thread, or with `any_thread` from a thread that lives as long as the queue is used."""
    url = resolved(url)
    if is_server(url):
        from .http import HttpQueue

        return HttpQueue(url, namespace, token)
    try:
        from .direct import DirectQueue
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("dueline"):
            raise
        raise ModuleNotFoundError(
            f"a queue at {url.partition(':')[0]}: needs {missing.name}: install dueline[server], or use a server's URL",
            name=missing.name,
        ) from missing
    log.info(using(url))
    if token or os.environ.get("DUELINE_TOKEN"):
        log.warning("the token has no effect: %s is a store, and only a server checks tokens", shown(url))
    return DirectQueue(url, namespace or os.environ.get("DUELINE_NAMESPACE") or "default", any_thread=any_thread)
