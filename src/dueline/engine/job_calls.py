"""Calls on existing jobs: by the lease holder (ack, release, extend), by others (cancel, patch, fire ...), reads."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from zlib import crc32

from msgspec.structs import replace

from .checks import Checks, cut_error, within
from .commands import Patch
from .completion import Done, awaited, leave
from .errors import AlreadyDone, InvalidField, JobLeased, NotFound, UnknownOutcome, VersionMismatch
from .fan_out import over_partitions
from .history import History
from .job import ENDED, Job, Partition, State
from .limits import check_name
from .metrics import Word, succeeded
from .open_groups import GroupPage, OpenGroup
from .patching import changes_policy, edit_of, patched_policy
from .replies import refusal
from .store import (
    Code,
    Edit,
    Extend,
    Outcome,
    Page,
    Purge,
    Query,
    Ref,
    Release,
    Revive,
    Spare,
    Store,
)
from .topics import PartitionMap, Topic, Topics

_OK, _NOT_FOUND = Code.OK, Code.NOT_FOUND  # looking up a member of an enum is slow
EDIT_TRIES = 10
I = TypeVar("I")  # noqa: E741
F = TypeVar("F")
LIST_CALLS = 8  # store calls for one page of a topic with many partitions


def _id_of(item: Ref | Release | Extend | Edit) -> str:
    return item.id


def _same(id: str) -> str:
    return id


class JobCalls:
    """Each method checks, calls the store on the partitions concerned, and counts."""

    def __init__(self, store: Store, topics: Topics, checks: Checks) -> None:
        self._store = store
        self._topics = topics
        self._checks = checks

    async def ack(self, topic: Topic, refs: Sequence[Ref]) -> list[Outcome]:
        """`post_ack` for a caller that awaits."""
        return await awaited(self.post_ack, topic, refs)

    def post_ack(self, topic: Topic, refs: Sequence[Ref], done: Done) -> None:
        """Ack jobs: `done` gets their outcomes, or the error. May raise an error, too. Calls leave the line
        here for jobs of several partitions, and in `_acked` for jobs that were not found."""
        self._checks.refs(refs)
        if len(refs) == 1 and not topic.old:
            on_reply = partial(self._acked, topic, refs, topic.map, self._topics.reads, done)
            self._store.post_ack(topic.partition_of(refs[0].id), refs, on_reply)
        else:
            leave(self._over(topic, refs, _id_of, self._store.ack, _counter(topic, "acked")), done)

    def _acked(
        self, topic: Topic, refs: Sequence[Ref], used: PartitionMap, reads: int, done: Done, results: Any
    ) -> None:
        """The only ref was acked, refused or not found, or the call failed."""
        if not isinstance(results, BaseException):
            code = results[0].code
            if code is _OK:
                topic.metrics.acked += 1
            elif code is _NOT_FOUND:
                count = _counter(topic, "acked")
                leave(self._sought(topic, refs, _id_of, self._store.ack, count, results, used, reads), done)
                return
        done(results)

    async def release(self, topic: Topic, items: Sequence[Release]) -> list[Outcome]:
        """Release jobs. Draws the jitter for items without one, and cuts error texts to 1 KiB."""
        self._checks.refs(items)
        items = [_drawn(item) for item in items]
        return await self._over(topic, items, _id_of, self._store.release, topic.count_released)

    async def extend(self, topic: Topic, items: Sequence[Extend]) -> list[Outcome]:
        self._checks.refs(items)
        return await self._over(topic, items, _id_of, self._store.extend, _counter(topic, "extended"))

    async def cancel(self, topic: Topic, ids: Sequence[str], forget: bool, spare: Spare = Spare.NONE) -> list[Outcome]:
        self._checks.ids(ids)

        async def call(partition: Partition, some: Sequence[str]) -> list[Outcome]:
            return await self._store.cancel(partition, some, forget, spare)

        return await self._over(topic, ids, _same, call, _counter(topic, "cancelled"))

    async def revive(
        self, topic: Topic, ids: Sequence[str], delay_ms: int, max_attempts: int | None, set_max_attempts: bool
    ) -> list[Outcome]:
        self._checks.ids(ids)
        self.check_revive(delay_ms, max_attempts)

        async def call(partition: Partition, some: Sequence[str]) -> list[Outcome]:
            revive = Revive(tuple(some), 0, delay_ms, max_attempts, set_max_attempts)
            return [done for _, done in await self._store.revive(partition, revive)]

        return await self._over(topic, ids, _same, call, _counter(topic, "revived"))

    def check_revive(self, delay_ms: int, max_attempts: int | None) -> None:
        within(delay_ms, 0, self._checks.limits.max_delay_ms, "delay_ms")
        if max_attempts is not None:
            self._checks.attempts(max_attempts)

    async def purge(self, topic: Topic, ids: Sequence[str]) -> list[Outcome]:
        self._checks.ids(ids)

        async def call(partition: Partition, some: Sequence[str]) -> list[Outcome]:
            return [done for _, done in await self._store.purge(partition, Purge(tuple(some)))]

        return await self._over(topic, ids, _same, call, _counter(topic, "purged"))

    async def get(self, topic: Topic, id: str) -> Job:
        check_name(id, "id")

        async def read() -> Job:
            return (await self._find(topic, id))[1]

        return await self._looked_for(topic, read)

    async def history(self, topic: Topic, id: str) -> History:
        check_name(id, "id")

        async def read() -> History:
            for partition in (topic.partition_of(id), topic.old_partition_of(id)):
                history = None if partition is None else await self._store.history(partition, id)
                if history is not None:
                    return history
            raise NotFound("there is no such job")

        return await self._looked_for(topic, read)

    async def fire(self, topic: Topic, id: str) -> Outcome:
        check_name(id, "id")
        [done] = await self._over(topic, [Edit(id, at_ms=0)], _id_of, self._store.edit, lambda _: None)
        _raise_refusal(done)
        return done

    async def patch(self, topic: Topic, patch: Patch) -> Job:
        """Change a job and return it. A policy change is computed from the stored job and applied only if the job's
        version is still the same."""
        check_name(patch.id, "id")
        self._checks.times(patch.delay_ms, patch.at_ms, self._store.now_ms)
        self._checks.options(patch)
        if patch.body is not None:
            self._checks.body(patch.body, topic.max_body_bytes)
        return await self._looked_for(topic, lambda: self._patched(topic, patch))

    async def _find(self, topic: Topic, id: str, body: bool = True) -> tuple[Partition, Job]:
        """The job and the partition that holds it. Jobs never move to another one."""
        for partition in (topic.partition_of(id), topic.old_partition_of(id)):
            job = None if partition is None else (await self._store.read(partition, (id,), body))[0]
            if partition is not None and job is not None:
                return partition, job
        raise NotFound("there is no such job")

    async def _patched(self, topic: Topic, patch: Patch) -> Job:
        if patch.body is not None:
            await self._check_body_may_change(topic, patch.id)
        partition = topic.partition_of(patch.id)
        if topic.old_partition_of(patch.id) is not None:
            partition = (await self._find(topic, patch.id, False))[0]
        done = Outcome(Code.VERSION_MISMATCH)
        for _ in range(EDIT_TRIES):
            [done] = await self._store.edit(partition, (await self._edit_of(topic, partition, patch),))
            if done.code is not Code.VERSION_MISMATCH or patch.version is not None:
                break
        _raise_refusal(done)
        [job] = await self._store.read(partition, (patch.id,))
        if job is None:
            raise UnknownOutcome("the job was changed and has ended since", id=patch.id)
        return job

    async def _check_body_may_change(self, topic: Topic, id: str) -> None:
        """Refuse a new body for a merge group, because a group has items instead. A group never becomes a plain job."""
        try:
            _, job = await self._find(topic, id, False)
        except NotFound:
            return  # the edit finds out, and looks again
        if job.merge_key is not None:
            raise InvalidField("a merge group has items, not a body: to add an item, send with its merge key", "body")

    async def _edit_of(self, topic: Topic, partition: Partition, patch: Patch) -> Edit:
        if not changes_policy(patch):
            return edit_of(patch, None, patch.version)
        [job] = await self._store.read(partition, (patch.id,), False)
        if job is None:
            raise NotFound("there is no such job")
        if job.state in ENDED:
            raise AlreadyDone
        if job.state is State.LEASED:
            raise JobLeased
        if patch.version is not None and patch.version != job.version:
            raise VersionMismatch
        return edit_of(patch, patched_policy(patch, job.policy, topic.job_policy), job.version)

    async def _over(
        self,
        topic: Topic,
        items: Sequence[I],
        id_of: Callable[[I], str],
        call: Callable[[Partition, Sequence[I]], Awaitable[list[Outcome]]],
        count: Callable[[Sequence[Outcome]], None],
    ) -> list[Outcome]:
        """`over_partitions`, but jobs that are not found are searched again if the topic's partitions have changed."""
        used, reads = topic.map, self._topics.reads
        results = await over_partitions(topic, items, id_of, call, count)
        return await self._sought(topic, items, id_of, call, count, results, used, reads)

    async def _sought(
        self,
        topic: Topic,
        items: Sequence[I],
        id_of: Callable[[I], str],
        call: Callable[[Partition, Sequence[I]], Awaitable[list[Outcome]]],
        count: Callable[[Sequence[Outcome]], None],
        results: list[Outcome],
        used: PartitionMap,
        reads: int,
    ) -> list[Outcome]:
        missing = [place for place, done in enumerate(results) if done.code is Code.NOT_FOUND]
        if missing and await self._topics.renewed(topic, used, reads):
            again = await over_partitions(topic, [items[place] for place in missing], id_of, call, count)
            for place, done in zip(missing, again, strict=True):
                results[place] = done
        return results

    async def _looked_for(self, topic: Topic, ask: Callable[[], Awaitable[F]]) -> F:
        """The same for a call on one job that raises NotFound."""
        used, reads = topic.map, self._topics.reads
        try:
            return await ask()
        except NotFound:
            if not await self._topics.renewed(topic, used, reads):
                raise
            return await ask()

    async def list(self, topic: Topic, query: Query) -> Page:
        """One page, partition by partition, by their numbers. A cursor holds the number of the partition and the
        store's own cursor in it. If that partition is gone, because its last job has ended, the next one follows."""
        self._checks.query(query)
        key = query.merge_key
        partitions = topic.partitions if key is None else tuple(reversed(topic.partitions_of_key(key)))
        place, cursor = _unpack_cursor(query.cursor, [partition.number for partition in partitions])
        jobs: list[Job] = []
        now_ms = self._store.now_ms()
        for _ in range(LIST_CALLS):
            asked = replace(query, cursor=cursor, limit=query.limit - len(jobs))
            page = await self._store.list(partitions[place], asked)
            jobs += page.jobs
            now_ms = page.now_ms
            if page.cursor is not None:
                cursor = page.cursor
            elif place + 1 < len(partitions):
                place, cursor = place + 1, b""
            else:
                return Page(jobs, None, now_ms)
            if page.cursor is not None or len(jobs) >= query.limit:
                break
        return Page(jobs, _pack_cursor(partitions[place].number, cursor), now_ms)

    async def groups(self, topic: Topic, cursor: bytes, limit: int) -> GroupPage:
        """One page of open merge groups, partition by partition, with the same kind of cursor as `list`."""
        within(limit, 1, 500, "limit")
        place, cursor = _unpack_cursor(cursor, [partition.number for partition in topic.partitions])
        groups: list[OpenGroup] = []
        for _ in range(LIST_CALLS):
            page = await self._store.groups(topic.partitions[place], cursor, limit - len(groups))
            groups += page.groups
            if page.cursor is not None:
                cursor = page.cursor
            elif place + 1 < len(topic.partitions):
                place, cursor = place + 1, b""
            else:
                return GroupPage(groups, None)
            if page.cursor is not None or len(groups) >= limit:
                break
        return GroupPage(groups, _pack_cursor(topic.partitions[place].number, cursor))


def _pack_cursor(partition: int, cursor: bytes) -> bytes:
    """Adds a checksum, so that only cursors made by a store reach the store."""
    packed = partition.to_bytes(4, "big") + cursor
    return crc32(packed).to_bytes(4, "big") + packed


def _unpack_cursor(cursor: bytes, numbers: Sequence[int]) -> tuple[int, bytes]:
    """The index of the partition to continue with, and the cursor inside this partition."""
    if not cursor:
        return 0, b""
    packed = cursor[4:]
    number = int.from_bytes(packed[:4], "big")
    if len(packed) < 4 or crc32(packed) != int.from_bytes(cursor[:4], "big") or number > numbers[-1]:
        raise InvalidField("is not a cursor of this list", "cursor")
    place = next(place for place, one in enumerate(numbers) if one >= number)
    return place, packed[4:] if numbers[place] == number else b""


def _counter(topic: Topic, word: Word) -> Callable[[Sequence[Outcome]], None]:
    return lambda results: topic.count(word, succeeded(results))


def _drawn(item: Release) -> Release:
    error = None if item.error is None else cut_error(item.error)
    return replace(item, error=error, jitter_draw=item.jitter_draw or random.random())


def _raise_refusal(done: Outcome) -> None:
    error = refusal(done.code)
    if error is not None:
        raise error
