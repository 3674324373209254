"""The workers of a namespace: calls workers.lua. Each namespace has two keys in a slot of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...engine.worker_store import FORGET_MS, MAX_WORKERS, WORKER_PAGE, WorkerEntry
from .codec import pack_numbers, unpack_numbers

BEAT, LEAVE, PAGE, GET = range(1, 5)
READING = frozenset({PAGE, GET})

Run = Callable[[str, int, bytes, bytes], Awaitable[tuple[bytes, bytes]]]


class ValkeyWorkers:
    """Implements `engine.worker_store.WorkerStore`. `run` makes one call for a namespace."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def _ask(self, namespace: str, what: int, numbers: list[int], blob: bytes = b"") -> tuple[list[int], bytes]:
        packed, answer = await self._run(namespace, what, pack_numbers(numbers), blob)
        return unpack_numbers(packed), answer

    async def beat(self, namespace: str, name: str, data: bytes) -> bool:
        id = name.encode()
        return bool((await self._ask(namespace, BEAT, [FORGET_MS, MAX_WORKERS, len(id)], id + data))[0][0])

    async def leave(self, namespace: str, name: str) -> bool:
        return bool((await self._ask(namespace, LEAVE, [], name.encode()))[0][0])

    async def page(self, namespace: str, start: int) -> tuple[list[WorkerEntry], int | None]:
        (after, *numbers), blob = await self._ask(namespace, PAGE, [FORGET_MS, start, WORKER_PAGE])
        return _entries(numbers, blob), None if after < 0 else after

    async def get(self, namespace: str, name: str) -> WorkerEntry | None:
        (_, *numbers), blob = await self._ask(namespace, GET, [FORGET_MS], name.encode())
        return next(iter(_entries(numbers, blob)), None)


def _entries(numbers: list[int], blob: bytes) -> list[WorkerEntry]:
    entries: list[WorkerEntry] = []
    at = 0
    for i in range(0, len(numbers), 4):
        name_size, seen_at_ms, stopped, data_size = numbers[i : i + 4]
        middle, end = at + name_size, at + name_size + data_size
        entries.append(WorkerEntry(blob[at:middle].decode(), seen_at_ms, bool(stopped), blob[middle:end]))
        at = end
    return entries
