"""What a worker needs of a queue, and the ways to one.

    http://  https://                      a server                              worker.http
    redis://  valkey://  unix:// ...       straight on the store, no server      worker.direct
    embedded:./data                        the embedded store in this process    worker.direct

All speak the client's values (`LeasedJob`, `Sent`, `Outcome`) and raise the client's errors (`DuelineApiError`), so a
program moves from one to the other by its URL. Without a URL, DUELINE_URL decides, else it is the server on this
machine that clients and the command line mean too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Unpack, runtime_checkable

from ..client.address import named_url, shown, split, using
from ..client.calls import Leased, NewJob
from ..client.results import Job, LeasedJob, Outcome, Sent, SentItem
from ..client.sending import Policy, SendOptions
from ..client.times import Duration, Moment

EMBEDDED = "embedded:"
STORES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "valkey", "valkeys", "valkey+cluster", "unix")

log = logging.getLogger("dueline.worker")


class Queue(Protocol):
    """One namespace of one queue, used from one event loop. `url` is where another process finds the same queue; None
    when there is no such place. `start` connects (a call before it does so too); `close` may come at any time."""

    @property
    def url(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...

    async def start(self) -> None:
        """Connect, trying for as long as patience lasts. Raises DuelineApiError."""
        ...

    async def close(self) -> None:
        """Disconnect. It may be called twice, and before `start`."""
        ...

    async def send(self, topic: str, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """Store a job. Options: `delay` or `at`, `id`, `on_conflict`, `merge`, and its policy; see SendOptions."""
        ...

    async def send_many(self, topic: str, jobs: Iterable[NewJob]) -> list[SentItem]:
        """Store any number of jobs made by `new_job`; a result per job in their order."""
        ...

    async def get(self, topic: str, id: str) -> Job:
        """The job as it is now. Raises NotFound."""
        ...

    async def cancel(self, topic: str, id: str, missing_ok: bool = False) -> Outcome:
        """Withdraw a job, even one that is held. Raises NotFound, or AlreadyDone when it had ended; with `missing_ok`
        neither: the outcome is not `ok` then."""
        ...

    async def reschedule(self, topic: str, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        """Move the due time of a job that nobody holds: `delay` from now, or `at`."""
        ...

    async def pull(
        self, topics: Sequence[str], max: int = 1, lease_ms: int | None = None, wait_ms: int = 0
    ) -> Sequence[LeasedJob]:
        """Take due jobs under a lease, waiting up to wait_ms for the first. A cancelled pull costs no attempt: a job
        that was on its way is given back uncounted."""
        ...

    async def ack(self, jobs: Sequence[LeasedJob | Leased]) -> list[Outcome]:
        """Jobs of any topics are done; a result per job in their order."""
        ...

    async def release(
        self,
        jobs: Sequence[LeasedJob | Leased],
        delay_ms: int | None = None,
        error: str | None = None,
        count: bool = True,
        discard: bool = False,
    ) -> list[Outcome]:
        """Give jobs back, all in the same way: after `delay_ms`, else as their retry policy says. `count=False` costs
        no attempt; `discard=True` ends them as dead (rejected)."""
        ...

    async def extend(self, jobs: Sequence[LeasedJob | Leased], lease_ms: int) -> list[Outcome]:
        """Keep jobs for `lease_ms` from now; a result per job in their order."""
        ...

    async def propose_policy(self, topic: str, policy: Policy) -> Mapping[str, Any]:
        """Say how a worker wants a topic's jobs delivered (`lease`, `ttl`, `max_attempts`, `retry`). That fills what is
        unset and replaces what a worker set, but not what an operator set. These fields as the topic then has them, in
        the words of the API."""
        ...


@runtime_checkable
class SendsNow(Protocol):
    """A queue that can be sent to from a thread of no event loop, which then waits on the store itself."""

    def send_now(self, topic: str, job: NewJob) -> Sent | None:
        """None: it must be sent in the usual way, with the same id: it may have been stored already."""
        ...


def resolved(url: str | None) -> str:
    """The URL that is meant (`named_url`), checked. Raises ValueError."""
    url = named_url(url)
    scheme = url.partition(":")[0]
    known = scheme == "embedded" or (scheme in ("http", "https", *STORES) and url.startswith(f"{scheme}://"))
    if not known:
        raise ValueError(
            f'"{shown(url)}" is not a queue: use http://, redis://, valkey://, unix:// or embedded:./folder'
        )
    if scheme != "embedded":
        split(url)
    elif not url[len(EMBEDDED) :]:
        raise ValueError("name the folder of the embedded store, like embedded:./dueline-data")
    return url


def connect(
    url: str | None = None, namespace: str | None = None, token: str | None = None, *, any_thread: bool = False
) -> Queue:
    """The queue at `url`; nothing is opened before `start` or the first call.

    `token` is for servers; without it and `namespace`, DUELINE_TOKEN and DUELINE_NAMESPACE decide. An embedded store
    is started from the main thread; `any_thread`: or from one that lasts as long as the queue is used."""
    url = resolved(url)
    if url.startswith(("http://", "https://")):
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
