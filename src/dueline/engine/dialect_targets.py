"""A push target that belongs to a dialect and not to a user. Its topics get it before their first job is sent.

So no job can be in a topic without a target. The target is part of the topic's config, which is also how a dialect
finds its topics after a restart. A process checks at most once a minute that the target is still there. The dialect's
settings take precedence: a target that differs is overwritten, except its paused flag, secrets and rate. A target with
another courier is left alone.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from .engine import Engine
from .errors import Conflict, NotFound, Unavailable
from .push_target import PushTarget

MAX_KNOWN = 100_000
SURE_S = 60.0
TRIES = 5
USERS = ("paused", "secrets", "rate_per_s")  # set by users; a dialect has no settings for them


class DialectTarget:
    """One target for any number of topics of a namespace. `sole`: these topics must not have another courier."""

    def __init__(self, engine: Engine, namespace: str, target: PushTarget, sole: bool = False) -> None:
        self._sole = sole
        self._engine = engine
        self._namespace = namespace
        self._target = target
        self._sure_until_s: dict[str, float] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def serve(self, topic: str, paused: bool = False) -> None:
        """Ensure that the topic has the target. `paused` applies to a new target only; later its users decide."""
        if asyncio.get_running_loop().time() < self._sure_until_s.get(topic, 0.0):
            return
        looking = self._looking.get(topic)
        if looking is None:  # concurrent first jobs share one check
            looking = self._looking[topic] = asyncio.create_task(self._look(topic, paused))
            looking.add_done_callback(lambda done: self._looked(topic, done))
        await asyncio.shield(looking)

    async def _look(self, topic: str, paused: bool) -> None:
        for _ in range(TRIES):
            try:
                found = await self._engine.push_target(self._namespace, topic)
            except NotFound:
                found = None
            wanted = self._target
            if found is None:
                wanted = replace(wanted, paused=paused)
            elif found.courier == wanted.courier:
                theirs = {name: getattr(found, name) for name in USERS}
                wanted = replace(wanted, **theirs)
            foreign = found is not None and found.courier != wanted.courier
            if found == wanted or (foreign and not self._sole):
                return
            try:
                await self._engine.set_push(self._namespace, topic, wanted)
                return
            except Conflict:
                continue  # other processes set it at the same moment
        raise Unavailable("other processes keep changing this topic; nothing was done")

    def _looked(self, topic: str, done: asyncio.Task[None]) -> None:
        del self._looking[topic]
        if done.cancelled() or done.exception() is not None:
            return
        if len(self._sure_until_s) >= MAX_KNOWN:
            self._sure_until_s.clear()
        self._sure_until_s[topic] = asyncio.get_running_loop().time() + SURE_S

    async def topics(self) -> list[str]:
        """All topics with this target, by name."""
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page, cursor = await self._engine.push_topics(self._namespace, cursor, 500)
            found += [one.topic for one in page if one.target.courier == self._target.courier]
        return found
