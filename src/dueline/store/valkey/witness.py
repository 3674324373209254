"""Durability `replicated`: an answer counts when a replica is known to have what it did.

`WAIT` speaks about the last write of its own connection, and holds up every call behind it. So each connection for
calls has a witness beside it, a second connection to the same process. After an answer, the witness writes a marker and
waits for the replicas to have it (`replica_count`: how many). A replica gets all writes in order, so it then has
everything that was answered before the marker left, even an answer from memory that wrote nothing itself. One marker
covers all answers that wait for it. If either connection is lost, both are: a new one may be to another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from redis.exceptions import RedisError

from .link_errors import LinkLost
from .replica_count import ReplicaCount
from .resp import command

if TYPE_CHECKING:
    from .node import PipelinedConnection

WAIT_MS = 400  # a call is tried again, under the same number, while its patience lasts
MARKER_MS = 60_000
MARK = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], '', 'PX', ARGV[1])"  # SET alone needs room


class Replication(msgspec.Struct):
    """How answers are covered. `accept`: answers without a replica count too. `uncovered` counts them."""

    accept: bool = False
    uncovered: int = 0


class Witness:
    """The witness of one connection. `connection` is to the same process. `suspect` is called when fewer replicas have
    a marker than should, `uncovered` when none has it in time, `recovered` when they have one again."""

    def __init__(
        self,
        connection: PipelinedConnection,
        replication: Replication,
        count: ReplicaCount,
        suspect: Callable[[], None],
        uncovered: Callable[[], None] = lambda: None,
        recovered: Callable[[], None] = lambda: None,
    ) -> None:
        self._recovered = recovered
        self._failing = False
        self._connection = connection
        self._replication = replication
        self._count = count
        self._suspect = suspect
        self._uncovered = uncovered
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def covered(self, key: str) -> asyncio.Future[None]:
        """Done when a replica has everything that was answered before this call. Raises LinkLost otherwise."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((key, future))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return future

    async def _run(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            error = await self._failure(group[-1][0], len(group))
            for _, future in group:
                if not future.done() and error is None:
                    future.set_result(None)
                elif not future.done():
                    future.set_exception(LinkLost(error or "", True))
            if self._failing and error is None:
                self._recovered()
            self._failing = error is not None
        self._task = None

    async def _failure(self, key: str, answers: int) -> str | None:
        """Write a marker and wait. The marker has the slot of `key`, because the node must own it."""
        marker = f"{key.partition('}')[0]}}}:W"  # not the last part: that may be a topic, and so may W
        count, clock = self._count, asyncio.get_running_loop().time
        try:
            if count.should_ask(clock()):
                count.heard(await self._connection.send(command(("INFO", "replication"))))
            marking = self._connection.send(command(("EVAL", MARK, 1, marker, MARKER_MS)))
            confirming = self._connection.send(command(("WAIT", count.needed, WAIT_MS)))
            _, confirmed = await asyncio.gather(marking, confirming)
        except (LinkLost, RedisError) as error:  # without a marker, the count says nothing
            return f"it is not known whether a replica has it: {error}"
        if count.enough(confirmed, clock()):
            return None
        self._suspect()
        if confirmed == 0:
            self._uncovered()
        if self._replication.accept:
            self._replication.uncovered += answers
            return None
        return f"only {confirmed} of {count.needed} replicas have it" if confirmed else "no replica has it"
