"""Bulk calls by filter: loops of `list` and the operation, in steps of 500 and for at most 2 s of work (STORE 45).

The operation itself judges each job again, so one that changed since it was listed is never wrongly touched. A call
that ran out of time says so (`complete` False); the same call again goes on, as what was changed no longer matches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from .commands import Bulk, Filter
from .job import LIVE, Partition, State
from .store import Code, Outcome, Purge, Query, Revive, Spare, Store
from .topics import Topic

STEP = 500
WORK_S = 2.0
LOOKS = 4  # at the groups of a key: one can only be left when each look met a send, a failure and another send

Operation = Callable[[Partition, Sequence[str]], Awaitable[list[Outcome]]]


class BulkCalls:
    """`time_s` is the loop's clock."""

    def __init__(self, store: Store, time_s: Callable[[], float]) -> None:
        self._store = store
        self._time_s = time_s

    async def cancel(self, topic: Topic, which: Filter, dry_run: bool) -> Bulk:
        """Cancel what matches and is live."""
        done = await self._run(topic, which, (which.state,), LIVE, dry_run, self._store.cancel)
        topic.count("cancelled", done.changed)
        return done

    async def cancel_groups(self, topic: Topic, key: str, dry_run: bool) -> Bulk:
        """Cancel the groups of a merge key, but those that somebody holds.

        A group that waits for its retry gives its items to one that a send opens, also between the look and the
        cancel. So a look follows each cancel: the items that were there at the call are gone, whichever group has them.
        """
        partition = topic.partition_of(key)
        matched: set[str] = set()
        cancelled: set[str] = set()
        for _ in range(LOOKS):
            groups = await self._groups(partition, key)
            matched.update(groups)
            free = [id for id, state in groups.items() if state is not State.LEASED]
            if dry_run or not free:
                break
            for start in range(0, len(free), STEP):
                some = free[start : start + STEP]
                done = await self._store.cancel(partition, some, spare=Spare.LEASED)
                cancelled.update(id for id, one in zip(some, done, strict=True) if one.code is Code.OK)
        topic.count("cancelled", len(cancelled))
        return Bulk(len(matched), len(cancelled), dry_run)

    async def _groups(self, partition: Partition, key: str) -> dict[str, State]:
        found: dict[str, State] = {}
        cursor: bytes | None = b""
        while cursor is not None:
            page = await self._store.list(partition, Query(merge_key=key, cursor=cursor, limit=STEP))
            found.update((job.id, job.state) for job in page.jobs)
            cursor = page.cursor
        return found

    async def revive(
        self, topic: Topic, which: Filter, dry_run: bool, delay_ms: int, max_attempts: int | None, set_max: bool
    ) -> Bulk:
        """Revive what matches and is dead."""

        async def operation(partition: Partition, ids: Sequence[str]) -> list[Outcome]:
            revive = Revive(tuple(ids), 0, delay_ms, max_attempts, set_max)
            return [done for _, done in await self._store.revive(partition, revive)]

        done = await self._run(topic, which, (State.DEAD,), frozenset({State.DEAD}), dry_run, operation)
        topic.count("revived", done.changed)
        return done

    async def purge(self, topic: Topic, which: Filter, dry_run: bool) -> Bulk:
        """Forget what matches and has ended; without a state in the filter: what is dead."""

        async def operation(partition: Partition, ids: Sequence[str]) -> list[Outcome]:
            return [done for _, done in await self._store.purge(partition, Purge(tuple(ids)))]

        state = State.DEAD if which.state is None else which.state
        done = await self._run(topic, which, (state,), frozenset({state}), dry_run, operation)
        topic.count("purged", done.changed)
        return done

    async def _run(
        self,
        topic: Topic,
        which: Filter,
        states: Sequence[State | None],
        wanted: frozenset[State],
        dry_run: bool,
        operation: Operation,
    ) -> Bulk:
        if states == (None,) and which.tag is None:
            states = sorted(wanted)  # without a tag the ended ones would be walked too
        end_s = self._time_s() + WORK_S
        matched = changed = 0
        for partition in topic.partitions:
            for state in states:
                cursor: bytes | None = b""
                while cursor is not None:
                    if self._time_s() >= end_s:
                        return Bulk(matched, changed, dry_run, complete=False)
                    query = Query(
                        state=state,
                        tag=which.tag,
                        due_after_ms=which.due_after_ms,
                        due_before_ms=which.due_before_ms,
                        cursor=cursor,
                        limit=STEP,
                    )
                    page = await self._store.list(partition, query)
                    ids = [job.id for job in page.jobs if job.state in wanted]
                    matched += len(ids)
                    if ids and not dry_run:
                        changed += sum(1 for done in await operation(partition, ids) if done.code is Code.OK)
                    cursor = page.cursor
        return Bulk(matched, changed, dry_run)
