"""One method per operation on workers: from a request struct to a reply."""

from __future__ import annotations

import msgspec

from ...api import answers as a
from ...api import live_requests as lr
from ...api.reply import Reply
from ...engine.engine import Engine
from ...engine.errors import BodyTooLarge, Forbidden, NotFound, RateLimited
from ...engine.worker_store import BEAT_MS, MAX_WORKER_BYTES, MAX_WORKERS
from ...rights import Grant
from .wire import Caller, plain_name

MOST_SHOWN = 1_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(lr.PutWorker).decode


class WorkerHandlers:
    """The handlers of the group "Workers". A token that is valid for some topics may see and change the workers of
    these. Only its stored report says which topics a worker has, so that is checked here and not in `access`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put_worker(self, caller: Caller, request: lr.PutWorker, name: str) -> Reply:
        data = _encode(request)
        if len(data) > MAX_WORKER_BYTES:
            raise BodyTooLarge(f"A worker's report has at most {MAX_WORKER_BYTES} bytes.")
        if await self._is_hidden(caller, plain_name(name, "name")):
            raise Forbidden("A worker of this name has topics for which this token is not valid.", "name")
        if not await self._engine.store.workers.beat(caller.namespace, name, data):
            raise RateLimited(f"This namespace has {MAX_WORKERS} workers already; more are not accepted.")
        return Reply(a.WorkerSeen(name=name, beat_ms=BEAT_MS))

    async def stop_worker(self, caller: Caller, _: object, name: str) -> Reply:
        if await self._is_hidden(caller, name) or not await self._engine.store.workers.leave(caller.namespace, name):
            raise NotFound("there is no such worker")
        return Reply(a.WorkerStopped(name=name, result="stopped"))

    async def list_workers(self, caller: Caller, _: object) -> Reply:
        """The workers all of whose topics the caller may see."""
        shown: dict[str, a.Worker] = {}
        start: int | None = 0
        while start is not None and len(shown) < MOST_SHOWN:
            entries, start = await self._engine.store.workers.page(caller.namespace, start)
            for entry in entries:
                report = _decode(entry.data)
                if _shows(caller.grant, report):
                    fields = msgspec.to_builtins(report)
                    fields |= {"name": entry.name, "seen_at_ms": entry.seen_at_ms, "stopped": entry.stopped}
                    shown[entry.name] = msgspec.convert(fields, a.Worker)
        return Reply(a.Workers(workers=tuple(shown[name] for name in sorted(shown))[:MOST_SHOWN]))

    async def _is_hidden(self, caller: Caller, name: str) -> bool:
        """Whether there is such a worker, and the caller may not see it."""
        if caller.grant.covers_all:
            return False
        entry = await self._engine.store.workers.get(caller.namespace, name)
        return entry is not None and not _shows(caller.grant, _decode(entry.data))


def _shows(grant: Grant, report: lr.PutWorker) -> bool:
    return all(map(grant.covers, (*report.topics, *(one.topic for one in report.running))))
