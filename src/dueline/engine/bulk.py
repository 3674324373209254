"""Bulk calls by filter: list a page of up to 500 jobs, apply the operation, repeat for at most 2 s.

The operation checks each job's state again, so a job that changed after it was listed is left alone. A call that runs
out of time returns `complete` False. Repeating the call continues, because jobs already changed no longer match.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from .commands import Bulk, Filter
from .job import LIVE, Partition, State
from .store import Code, Outcome, Purge, Query, Revive, Spare, Store
from .topics import Topic

STEP = 500
WORK_S = 2.0
LOOKS = 4  # passes over a key's groups; one survives only if each pass raced with a send, a failure and another send

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
        """Cancel the groups of a merge key, except leased ones.

        When a send opens a group, a group that waits for its retry moves its items there. This may happen between the
        listing and the cancel. The groups are therefore listed again after each cancel, until no item that existed at
        the call is left in any group.
        """
        matched: set[str] = set()
        cancelled: set[str] = set()
        for partition in topic.partitions_of_key(key):
            for _ in range(LOOKS):
                groups = await self._groups(partition, key)
                matched.update(groups)
                free = [id for id, state in groups.items() if state is not State.LEASED]
                if dry_run or not free:
                    break
                cancelled.update(await self._cancel_free(partition, free))
        topic.count("cancelled", len(cancelled))
        return Bulk(len(matched), len(cancelled), dry_run)

    async def _cancel_free(self, partition: Partition, ids: Sequence[str]) -> list[str]:
        """Cancel groups, except those that were leased in the meantime. Returns the ids of the cancelled ones."""
        cancelled: list[str] = []
        for start in range(0, len(ids), STEP):
            some = ids[start : start + STEP]
            done = await self._store.cancel(partition, some, spare=Spare.LEASED)
            cancelled += (id for id, one in zip(some, done, strict=True) if one.code is Code.OK)
        return cancelled

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
        """Delete the ended jobs that match; without a state in the filter, the dead ones."""

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
            states = sorted(wanted)  # without a tag, listing all states would also walk the ended jobs
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
