"""A whole server in this process whose store breaks one promise on purpose: the positive controls of load and checker.

Everything but the breakage is the real thing: front, dialect, engine, scripts, a private Valkey.
"""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager

import msgspec

from dueline.dialects.contract import DialectContext
from dueline.dialects.native.dialect import NativeDialect
from dueline.dialects.settings import DialectSettings
from dueline.engine.completion import awaited
from dueline.engine.engine import Engine
from dueline.engine.job import Partition
from dueline.engine.posts import PostedByTask
from dueline.engine.store import (
    Code,
    OnConflict,
    Outcome,
    Pull,
    PullOutcome,
    Ref,
    Release,
    SendItem,
    SendOutcome,
    Spare,
)
from dueline.server.front import Front
from dueline.server.router import Router
from dueline.store.valkey.store import ValkeyStore

replace = msgspec.structs.replace


class _Awaited(ValkeyStore):
    """Its calls that are awaited make the posted ones of the real store."""

    def send(
        self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0
    ) -> Awaitable[list[SendOutcome]]:
        return awaited(super().post_send, partition, items, policy_version)

    async def pull(self, partition: Partition, pull: Pull) -> PullOutcome:
        return await awaited(super().post_pull, partition, pull)

    def ack(self, partition: Partition, items: Sequence[Ref]) -> Awaitable[list[Outcome]]:
        return awaited(super().post_ack, partition, items)


class Sound(PostedByTask, _Awaited):
    """Nothing is broken. The server's posted calls await those below, so that a subclass breaks both. `chance(p)` is
    for those that are broken only sometimes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._dice = random.Random(11)

    def chance(self, p: float) -> bool:
        return self._dice.random() < p


class LosesSends(Sound):
    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        results = await super().send(partition, items, policy_version)
        if self.chance(0.2):
            await self.cancel(partition, [item.id for item in items], forget=True)
        return results


class IsEarly(Sound):
    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        early = [replace(item, delay_ms=max(0, item.delay_ms - 20)) for item in items]
        return await super().send(partition, early, policy_version)


class AltersBodies(Sound):
    async def pull(self, partition: Partition, pull: Pull) -> PullOutcome:
        pulled = await super().pull(partition, pull)
        return replace(pulled, jobs=[replace(job, body=job.body.replace(b"x", b"y")) for job in pulled.jobs])


class ForgetsAcks(Sound):
    async def ack(self, partition: Partition, items: Sequence[Ref]) -> list[Outcome]:
        return [Outcome(Code.OK) for _ in items] if self.chance(0.3) else await super().ack(partition, items)


class ForgetsCancels(Sound):
    async def cancel(
        self, partition: Partition, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        return [Outcome(Code.OK) for _ in ids]


class LeasesTwice(Sound):
    async def pull(self, partition: Partition, pull: Pull) -> PullOutcome:
        pulled = await super().pull(partition, pull)
        if self.chance(0.3):
            await super().release(partition, [Release(job.id, job.lease, delay_ms=0) for job in pulled.jobs])
        return pulled


class RefusesHolders(Sound):
    async def ack(self, partition: Partition, items: Sequence[Ref]) -> list[Outcome]:
        return [Outcome(Code.LEASE_LOST) for _ in items] if self.chance(0.2) else await super().ack(partition, items)


class IgnoresTokens(Sound):
    async def ack(self, partition: Partition, items: Sequence[Ref]) -> list[Outcome]:
        return await super().ack(partition, [Ref(item.id, None) for item in items])

    async def release(self, partition: Partition, items: Sequence[Release]) -> list[Outcome]:
        return await super().release(partition, [replace(item, token=None) for item in items])


class RepeatsNumbers(Sound):
    async def pull(self, partition: Partition, pull: Pull) -> PullOutcome:
        pulled = await super().pull(partition, pull)
        return replace(pulled, jobs=[replace(job, delivery=1) for job in pulled.jobs])


class TriesTooOften(Sound):
    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        patient = [replace(item, policy=replace(item.policy, max_attempts=99)) for item in items]
        return await super().send(partition, patient, policy_version)


class TakesAnyBody(Sound):
    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        return await super().send(partition, [replace(item, on_live=OnConflict.KEEP) for item in items], policy_version)


@asynccontextmanager
async def served(store: ValkeyStore) -> AsyncIterator[tuple[str, int]]:
    """The store behind the native API, in this process; the address of it."""
    engine = Engine(store)
    front = Front(Router([NativeDialect(DialectSettings(), DialectContext(engine, no_info))]))
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    await store.start()
    await engine.start()
    await front.start(sock)
    try:
        yield sock.getsockname()
    finally:
        await front.drain(1.0)
        await engine.stop()
        await store.stop()


def no_info():
    raise NotImplementedError("no test of this kind asks for /v1/info")
