"""The workers of each namespace, as plain values."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ...engine.worker_store import FORGET_MS, MAX_WORKERS, WORKER_PAGE, WorkerEntry


class MemoryWorkers:
    """Implements `engine.worker_store.WorkerStore`."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._workers: dict[str, dict[str, WorkerEntry]] = {}

    def _known(self, namespace: str) -> dict[str, WorkerEntry]:
        since_ms = self._clock() - FORGET_MS
        known = {name: one for name, one in self._workers.get(namespace, {}).items() if one.seen_at_ms > since_ms}
        self._workers[namespace] = known
        return known

    async def beat(self, namespace: str, name: str, data: bytes) -> bool:
        known = self._known(namespace)
        if name not in known and len(known) >= MAX_WORKERS:
            return False
        known.pop(name, None)
        known[name] = WorkerEntry(name, self._clock(), False, data)
        return True

    async def leave(self, namespace: str, name: str) -> bool:
        known = self._known(namespace)
        if name in known:
            known[name] = replace(known[name], stopped=True)
        return name in known

    async def get(self, namespace: str, name: str) -> WorkerEntry | None:
        return self._known(namespace).get(name)

    async def page(self, namespace: str, start: int) -> tuple[list[WorkerEntry], int | None]:
        found = sorted(self._known(namespace).values(), key=lambda one: (one.seen_at_ms, one.name))
        end = start + WORKER_PAGE
        return found[start:end], end if len(found) > end else None
