"""The store on Redis >= 7.0 / Valkey >= 7.2: each operation is one Lua script call on one partition.

    Store method -> Batcher (few calls in flight per operation and partition) -> numbers + blob -> script -> results

In a namespace with `namespace_ids`, a partition with the topic "" means "any topic". The topic of the id is looked up
first, then the operation runs on that topic's partition. It is repeated if the job has moved in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...engine.bands import Bands, ForecastPart
from ...engine.completion import Done, awaited, leave, through
from ...engine.fence import Fence
from ...engine.guards import GuardWatch
from ...engine.history import History, history_budget
from ...engine.job import Job, Partition, State
from ...engine.limits import Limits
from ...engine.open_groups import GroupPage
from ...engine.queue_limit import QueueLimit
from ...engine.store import (
    CleanOutcome,
    Code,
    Control,
    Edit,
    Extend,
    Outcome,
    Page,
    Pull,
    PullOutcome,
    Purge,
    Query,
    Ref,
    Release,
    Revive,
    SendItem,
    SendOutcome,
    Spare,
    Stats,
)
from ...engine.store_events import Events
from . import codec, histories, outcome_reports, reads, requests
from .audit_log import ValkeyAuditLog
from .batchers import AllBatchers, Run, slot_of
from .batching import Batcher, in_task, together
from .calls import Calls, WrongStore
from .charts import ValkeyCharts
from .clock import StoreClock
from .directory import ValkeyDirectory, announced_change
from .epochs import accept_command
from .event_stream import ValkeyEventStream
from .id_lookup import IdLookup
from .keys import changes_channel, partition_keys, tokens_channel
from .link import Link
from .openings import Openings
from .pulls import Pulls
from .push_log import ValkeyPushLog
from .scripts import Patch
from .sends import Sends
from .single_sends import SingleSends
from .tls import StoreTls
from .tokens import ValkeyTokens
from .wakeups import Wakeups
from .witness import Replication
from .workers import ValkeyWorkers

__all__ = ["ValkeyStore", "WrongStore"]

CLEAN_STEPS = 20  # before a list that shows dead jobs; remaining ones appear in the next list
ACKED = Outcome(Code.OK)


class ValkeyStore:
    """`queue_of`: the limit of a namespace's queued jobs. For tests: `clock` (the time to pass to every script),
    `lua_patch`, `repeat_changes`, `link` and `store_clock`."""

    def __init__(
        self,
        url: str,
        *,
        tls: StoreTls = StoreTls(),
        prefix: str = "dueline",
        clock: Callable[[], int] | None = None,
        limits: Limits = Limits(),
        patience_s: float = 4.5,  # clients of foreign protocols give up after 5 s
        reply_timeout_s: float = 2.5,
        lua_patch: Patch | None = None,
        on_call: Callable[[str, float], None] | None = None,
        replication: Replication | None = None,
        link: Link | None = None,
        store_clock: StoreClock | None = None,
        queue_of: Callable[[str], QueueLimit | None] = lambda namespace: None,
        guards: GuardWatch | None = None,
    ) -> None:
        self.url = url
        self._tls = tls
        self.prefix = prefix
        self.limits, self._history_bytes = limits, limits.max_history_bytes
        self._reply_timeout_s = reply_timeout_s
        self._patience_s = patience_s
        self._link = link or Link(url, reply_timeout_s, tls=tls, replication=replication, guards=guards)
        accept = accept_command(self._link.address.shown, prefix)
        self._calls = Calls(self._link, prefix, clock, patience_s, lua_patch, on_call, store_clock, accept)
        self._wakeups = Wakeups(self._link)
        self.directory = ValkeyDirectory(self._calls.directory, self._registered)
        self.pushes = ValkeyPushLog(self._calls.once, prefix, limits)
        self.audit = ValkeyAuditLog(self._calls.once, prefix, limits)
        self.charts = ValkeyCharts(self._calls.once, prefix)
        self.tokens = ValkeyTokens(self._calls.tokens, partial(self._wakeups.watch, tokens_channel(prefix)))
        self.stream = ValkeyEventStream(self._calls.event_call, self._wakeups, prefix)
        self.workers = ValkeyWorkers(self._calls.worker_call)
        self.clock, self.hook = self._calls.clock, self._calls.hook
        self._openings = Openings(self._calls, self.directory.pop_new)
        self.epochs, self.errors = self._calls.epochs, self._calls.errors
        self.start = self._calls.start
        self.check = self._openings.check
        self.plain, self.now_ms = self._calls.plain, self._calls.now_ms
        self._batchers = AllBatchers(limits, queue_of, self.hook)
        self._locks: dict[tuple[str, Partition], asyncio.Lock] = {}
        self._lookup = IdLookup(self._calls)
        self._sends = Sends(self._openings, self._alone)
        self._send_batchers = self._batchers.of("send", self._sends.run)
        self._ack_batchers = self._batchers.of("ack", self._acks)
        self._find_batchers = self._batchers.of("find", self._finds)
        self._pulls = Pulls(self._calls, self.hook, self._history_bytes, self.release, self._lookup)

    @property
    def events(self) -> Events | None:
        return self._calls.events

    @events.setter
    def events(self, events: Events | None) -> None:
        self._calls.events = events

    def repeat_changes(self, every: int) -> None:  # each n-th change, for tests
        self._calls.repeat_every = every

    @property
    def reconnects(self) -> int:
        return self._calls.reconnects

    async def stop(self) -> None:
        await self._wakeups.stop()
        await self._link.stop()

    def single_sends(self) -> SingleSends | None:
        """Sends for threads without an event loop; the caller closes it. None: only one node has this path, because a
        thread does not follow a primary that moves and has no witness."""
        if self._link.fails_over or self._link.replication is not None:
            return None
        loop = asyncio.get_running_loop()

        def unlisted(partition: Partition) -> None:
            loop.call_soon_threadsafe(self._calls.found_unlisted, partition)

        def report(partition: Partition, item: SendItem, outcome: SendOutcome | None) -> None:
            loop.call_soon_threadsafe(outcome_reports.report_send, self.hook, partition, item, outcome)

        url = self._link.address.node_url
        return SingleSends(url, self._tls, self._calls, self._reply_timeout_s, self._patience_s, unlisted, report)

    async def watch(self, partition: Partition) -> None:
        await self._wakeups.watch(partition_keys(self.prefix, partition).channel, lambda _: self._woken(partition))

    async def unwatch(self, partition: Partition) -> None:
        await self._wakeups.unwatch(partition_keys(self.prefix, partition).channel)

    async def watch_topics(self) -> None:
        await self._wakeups.watch(changes_channel(self.prefix), self._topic_changed)

    def _woken(self, partition: Partition) -> None:
        if self.events is not None:
            self.events.woken(partition)

    def _topic_changed(self, message: bytes | None) -> None:
        if self.events is not None:
            self.events.topic_changed(None if message is None else announced_change(message))

    # --- batching ---

    def _joined(
        self,
        name: str,
        partition: Partition,
        variant: int,
        run: Callable[[Partition, list[Any], int, str], Coroutine[Any, Any, list[Any]]],
    ) -> Batcher[Any, Any]:
        """The batcher of an operation that awaits. `run` gets the variant and the slot of the call."""

        def make(partition: Partition, variant: int) -> Run:
            return in_task(lambda items, lane: run(partition, items, variant, slot_of(variant, lane)))

        return self._batchers.of(name, make)[partition, variant]

    def _alone(self, name: str, partition: Partition) -> asyncio.Lock:
        """The lock of an operation that is not batched; it has one call in flight per partition."""
        if len(self._locks) > 4096:
            self._locks = {key: lock for key, lock in self._locks.items() if lock.locked()}
        return self._locks.setdefault((name, partition), asyncio.Lock())

    async def _changed(self, name: str, partition: Partition, numbers: bytes, more: bytes = b"") -> codec.Reply:
        async with self._alone(name, partition):
            return (await self._calls.change(name, partition, numbers, more))[2:]

    # --- operations ---

    def send(
        self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0
    ) -> Awaitable[list[SendOutcome]]:
        if items[0].merge is None if len(items) == 1 else all(item.merge is None for item in items):
            return awaited(self.post_send, partition, items, policy_version)
        return self._send_mixed(partition, items, policy_version)

    def post_send(self, partition: Partition, items: Sequence[SendItem], policy_version: int, done: Done) -> None:
        # A stale policy refuses a whole batch, so only sends with the same policy version are batched.
        self._send_batchers[partition, policy_version].post(items, done)

    async def _send_mixed(
        self, partition: Partition, items: Sequence[SendItem], policy_version: int
    ) -> list[SendOutcome]:
        """Merging sends have their own script, so that plain sends do not pay for it."""
        merging = [place for place, item in enumerate(items) if item.merge is not None]
        plain = [place for place, item in enumerate(items) if item.merge is None]
        appended = self._joined("append", partition, policy_version, self._sends.append)
        calls = [appended.call([items[place] for place in merging])]
        if not plain:
            return await calls[0]
        calls.append(self.send(partition, [items[place] for place in plain], policy_version))
        by_place = dict(zip(merging + plain, await together(calls), strict=True))
        return [by_place[place] for place in range(len(items))]

    async def pull(self, partition: Partition, pull: Pull) -> PullOutcome:
        return await awaited(self.post_pull, partition, pull)

    def post_pull(self, partition: Partition, pull: Pull, done: Done) -> None:
        self._pulls.post(partition, pull, done)

    def ack(self, partition: Partition, items: Sequence[Ref]) -> Awaitable[list[Outcome]]:
        return awaited(self.post_ack, partition, items)

    def post_ack(self, partition: Partition, items: Sequence[Ref], done: Done) -> None:
        if partition.topic or not partition.namespace_ids:
            self._ack_batchers[partition, 0].post(items, done)
        elif len(items) == 1:
            topic = self._lookup.pulled_from(partition, items[0].id)
            if topic is not None:
                self._ack_found(partition, items, done, [topic])
                return
            found = partial(self._ack_found, partition, items, done)
            self._find_batchers[partition, 0].post(items, found)
        else:
            leave(self._lookup.run(partition, items, requests.id_of, self.ack), done)

    def _finds(self, partition: Partition, _: int) -> Run:
        """How the topics of ids are looked up."""
        return in_task(lambda items, lane: self._lookup.topics_of(partition, [item.id for item in items]))

    def _ack_found(self, partition: Partition, items: Sequence[Ref], done: Done, topics: Any) -> None:
        """Ack a job in the topic that it was found in, unless it has moved to another one since."""
        if isinstance(topics, BaseException):
            done(topics)
        elif topics[0] is None:
            done([Outcome(Code.NOT_FOUND)])
        else:

            def on_reply(results: Any) -> None:
                if not isinstance(results, BaseException) and results[0].code is Code.ELSEWHERE:
                    leave(self._lookup.run(partition, items, requests.id_of, self.ack), done)
                else:
                    done(results)

            self.post_ack(replace(partition, topic=topics[0]), items, on_reply)

    def _acks(self, partition: Partition, _: int) -> Run:
        """How a batch of acks is run."""

        def run(items: list[Ref], lane: int, done: Done) -> None:
            def read(reply: tuple[int, int, list[int], bytes]) -> list[Outcome]:
                codes = reply[2]
                return [Outcome(codec.CODES[code]) for code in codes] if codes else [ACKED] * len(items)

            self._calls.post_change("ack", partition, *requests.refs(items), "", through(read, done))

        return run

    async def release(self, partition: Partition, items: Sequence[Release]) -> list[Outcome]:
        if partition.namespace_ids and not partition.topic:
            return await self._lookup.run(partition, items, requests.id_of, self.release)
        return await self._joined("release", partition, 0, self._release).call(items)

    async def _release(self, partition: Partition, items: list[Release], variant: int, slot: str) -> list[Outcome]:
        _, _, n, _ = await self._calls.change(
            "release", partition, *requests.releases(items, history_budget(self._history_bytes, partition)), slot
        )
        return [Outcome(codec.CODES[n[i]], n[i + 1], codec.REASONS[n[i + 2]]) for i in range(0, len(n), 3)]

    async def extend(self, partition: Partition, items: Sequence[Extend]) -> list[Outcome]:
        if partition.namespace_ids and not partition.topic:
            return await self._lookup.run(partition, items, requests.id_of, self.extend)
        return await self._joined("extend", partition, 0, self._extend).call(items)

    async def _extend(self, partition: Partition, items: list[Extend], variant: int, slot: str) -> list[Outcome]:
        _, _, n, _ = await self._calls.change("extend", partition, *requests.extends(items), slot)
        return [Outcome(codec.CODES[n[i]], n[i + 1]) for i in range(0, len(n), 2)]

    async def cancel(
        self, partition: Partition, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        if partition.namespace_ids and not partition.topic:
            return await self._lookup.run(
                partition, ids, str, lambda partition, ids: self.cancel(partition, ids, forget, spare)
            )
        return await self._joined("cancel", partition, forget + 2 * spare, self._cancel).call([Ref(id) for id in ids])

    async def _cancel(self, partition: Partition, items: list[Ref], what: int, slot: str) -> list[Outcome]:
        _, _, n, _ = await self._calls.change("cancel", partition, *requests.cancels(items, what), slot)
        return [Outcome(codec.CODES[code]) for code in n]

    async def edit(self, partition: Partition, items: Sequence[Edit]) -> list[Outcome]:
        return await self._joined("edit", partition, 0, self._edit).call(items)

    async def _edit(self, partition: Partition, items: list[Edit], variant: int, slot: str) -> list[Outcome]:
        encoded = requests.edits(items, history_budget(self._history_bytes, partition))
        n, _ = await self._openings.change("edit", partition, *encoded, slot)
        return [Outcome(codec.CODES[n[i]], n[i + 1], version=n[i + 2]) for i in range(0, len(n), 3)]

    async def read(self, partition: Partition, ids: Sequence[str], body: bool = True) -> list[Job | None]:
        if partition.namespace_ids and not partition.topic:
            topics = await self._lookup.topics_of(partition, ids)
            return [
                None if topic is None else (await self.read(replace(partition, topic=topic), [id], body))[0]
                for id, topic in zip(ids, topics, strict=True)
            ]
        return await reads.jobs_of(self._calls, partition, ids, body)

    async def history(self, partition: Partition, id: str) -> History | None:
        return await histories.history_of_job(self._calls, partition, id)

    async def list(self, partition: Partition, query: Query) -> Page:
        if query.state in (None, State.DEAD) and query.merge_key is None and not query.cursor:
            for _ in range(CLEAN_STEPS):  # record deaths by time first, so that the index includes them
                if not (await self.clean(partition)).more:
                    break
        return await reads.page_of_jobs(self._calls, partition, query)

    async def groups(self, partition: Partition, cursor: bytes, limit: int) -> GroupPage:
        return await reads.page_of_groups(self._calls, partition, cursor, limit)

    async def stored_ids(self, partition: Partition, limit: int) -> frozenset[str] | None:
        _, n, blob = await self._calls.look("stored_ids", partition, codec.pack_numbers([limit]))
        return codec.decode_ids(n[1:], blob) if n[0] else None

    async def stats(self, partition: Partition, edges_ms: Sequence[int] = (), from_now: bool = False) -> Stats:
        now_ms, n, _ = await self._calls.look("stats", partition, requests.edges(edges_ms, from_now))
        return codec.decode_stats(n, now_ms)

    async def forecast(self, parts: Sequence[ForecastPart], edges_ms: Sequence[int]) -> Bands:
        return await reads.bands_of(self._calls, parts, edges_ms)

    async def _control(self, partition: Partition, *numbers: float, epoch: str = "") -> tuple[bool, str]:
        n, found = await self._changed("control", partition, codec.pack_numbers(list(numbers)), epoch.encode())
        return bool(n[0]), found.decode()

    async def control(self, partition: Partition, control: Control) -> None:
        await self._control(partition, *requests.control(partition, control))

    async def agenda_noted(self, partition: Partition, at_ms: int) -> None:
        await self._control(partition, 2, at_ms)

    async def _registered(self, topics: Sequence[tuple[str, str]]) -> None:
        """The directory has these topics, so their partitions stop reporting that they are not listed."""
        for topic in topics:
            for partition in self._calls.unlisted.pop(topic, ()):
                await self._control(partition, 3)

    async def retire(self, partition: Partition, topic_too: bool = False) -> bool:
        def control(only_ask: int, epoch: str) -> Awaitable[tuple[bool, str]]:
            return self._control(partition, 4, int(topic_too), only_ask, epoch=epoch)

        return await self._openings.retire(partition, control, topic_too)

    async def fence(self, partition: Partition, fences: Sequence[Fence]) -> list[Fence]:
        n, _ = await self._changed("fence", partition, *requests.fences(fences))
        return requests.fences_now(fences, n)

    async def fences(self, partition: Partition, cursor: bytes = b"") -> tuple[list[Fence], bytes | None]:
        return requests.fences_page(*await self._changed("fence", partition, requests.READ_FENCES, cursor))

    async def _dead(
        self, partition: Partition, what: int, ids: Sequence[str] | None, limit: int, delay: int, most: int
    ) -> list[tuple[str, Outcome]]:
        results: list[tuple[str, Outcome]] = []
        parts = [ids[i : i + 500] for i in range(0, len(ids), 500)] if ids is not None else [[]]
        for part in parts:
            oldest = 0 if ids is not None else min(limit, 500)
            encoded = requests.dead(what, part, oldest, delay, most, self._history_bytes)
            async with self._alone("dead", partition):
                done = requests.dead_outcomes(*await self._openings.change("dead", partition, *encoded))
            if (heard := self.hook.outcomes) is not None:
                outcome_reports.report_dead(heard, partition, what, done)
            results += done
        return results

    async def revive(self, partition: Partition, revive: Revive) -> list[tuple[str, Outcome]]:
        most = (revive.max_attempts or 0) if revive.set_max_attempts else -1
        return await self._dead(partition, 1, revive.ids, revive.limit, revive.delay_ms, most)

    async def purge(self, partition: Partition, purge: Purge) -> list[tuple[str, Outcome]]:
        return await self._dead(partition, 2, purge.ids, purge.limit, 0, -1)

    async def clean(self, partition: Partition, limit: int = 200) -> CleanOutcome:
        n, blob = await self._changed("clean", partition, codec.pack_numbers([min(limit, 200)]))
        if (heard := self.hook.outcomes) is not None:
            outcome_reports.report_deaths(heard, partition, blob)
        return CleanOutcome(n[0], n[1], n[2], n[3], None if n[4] < 0 else n[4], bool(n[5]))
