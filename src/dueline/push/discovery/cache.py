"""A cache in front of a registry, so that a delivery does not wait for it.

    age of the cached answer        result
    up to refresh_ms (10 s)         the cached answer
    up to 3 x refresh_ms            the cached answer, while a background lookup refreshes it
    older, or nothing cached        a new lookup
    over 1 s, asked with `fresh`    a new lookup, because a job is waiting for an instance to appear

Concurrent lookups of one service are merged into one. When a lookup fails, the cached answer stays valid for as long as
the registry is down: an outage of the registry says nothing about the instances, and a call to a dead one just fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from . import Instance

FRESH_S = 1.0
MAX_SERVICES = 10_000
log = logging.getLogger("dueline.push")

Look = Callable[[str], Awaitable[Sequence[Instance]]]


class LookupFailed(Exception):
    """The registry did not answer, or its answer cannot be read. The message says why."""


class _Memory:
    """One service: the last good answer, and the time of the last lookup, successful or not."""

    __slots__ = ("asked_s", "instances")

    def __init__(self) -> None:
        self.instances: Sequence[Instance] = ()
        self.asked_s = float("-inf")


class CachingResolver:
    """A cache in front of `look`, which raises LookupFailed when the registry does not answer."""

    def __init__(self, look: Look, time_s: Callable[[], float], refresh_ms: int = 10_000) -> None:
        self._look = look
        self._time_s = time_s
        self._refresh_s = refresh_ms / 1000
        self._memories: dict[str, _Memory] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._failing = False

    async def instances(self, service: str, fresh: bool = False) -> Sequence[Instance]:
        memory = self._memories.get(service)
        if memory is None:
            if len(self._memories) >= MAX_SERVICES:
                self._memories.pop(next(iter(self._memories)))
            memory = self._memories[service] = _Memory()
        age_s = self._time_s() - memory.asked_s
        if age_s > (FRESH_S if fresh else 3 * self._refresh_s):
            await asyncio.wait([self._begin(service, memory)])  # a caller that is cancelled does not cancel the lookup
        elif age_s > self._refresh_s:
            self._begin(service, memory)
        return memory.instances

    async def stop(self) -> None:
        """Cancel the lookups in progress."""
        looking = list(self._looking.values())
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)

    def _begin(self, service: str, memory: _Memory) -> asyncio.Task[None]:
        task = self._looking.get(service)
        if task is None:
            task = self._looking[service] = asyncio.create_task(self._look_up(service, memory))
            task.add_done_callback(lambda _: self._looking.pop(service, None))
        return task

    async def _look_up(self, service: str, memory: _Memory) -> None:
        try:
            memory.instances = tuple(await self._look(service))
        except Exception as error:  # whatever it is, it must not break a delivery
            if not self._failing or not isinstance(error, LookupFailed):
                log.warning("the registry does not answer; using its last answer: %s", error)
            self._failing = True
        else:
            if self._failing:
                log.warning("the registry answers again")
            self._failing = False
        finally:
            memory.asked_s = self._time_s()
