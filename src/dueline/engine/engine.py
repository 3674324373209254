"""The engine: decides everything that can be decided before the store call, and knows no wire word and no key.

    dialect --Command--> Engine --items--> Store (one atomic call per partition)

It owns: validation against the limits (checks), times and policies to numbers (sending, patching), ids, the choice of
the partition, the cache of topic configs (topics), their change (control), the waiters, the cleaner and the
registration of topics (registrar). The life cycle itself is the contract of the store's operations. This class is the
list of what can be asked; each method finds the topic and hands on.

Whoever wires them starts the store before the engine and stops it after the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from .bulk import BulkCalls
from .checks import Checks
from .cleaner import ROUND_S, Cleaner
from .commands import Bulk, Filter, Patch, Pull, Send, Sent, TopicPatch, TopicView
from .control import TopicControl
from .deletion import TopicDeletion
from .errors import Draining, DuelineError
from .forwarder import Forwarder
from .job import ENDED, LIVE, Job, LeasedJob, Partition, State
from .job_calls import JobCalls
from .limits import Limits, check_name
from .metrics import EngineMetrics
from .on_dead import ON_DEAD_TARGET, ON_DEAD_TOPIC, roomy
from .push_control import PushControl, PushNews
from .push_target import Pushing, PushTarget
from .registrar import IDLE_MS, Registrar
from .sender import Sender, SendWatch
from .store import Code, Extend, Outcome, Page, Query, Ref, Release, SendItem, SendOutcome, Spare, Store
from .timer import LoopTimer, Timer
from .topics import Topic, Topics
from .waiters import Waiters


class Engine:
    """Every promise of the native API as a method. All topics are given as (namespace, topic).

    `namespace_ids`: namespaces whose ids are unique over all their topics. `idle_ms`: when an unused, empty topic
    leaves the directory. `round_s`: how often to look for what other processes left. `figures`: what this process
    counted. `timer` is a seam for tests.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits = Limits(),
        *,
        namespace_ids: frozenset[str] = frozenset(),
        idle_ms: int = IDLE_MS,
        round_s: float = ROUND_S,
        timer: Timer | None = None,
    ) -> None:
        timer = timer or LoopTimer()
        self.figures = EngineMetrics()
        self.limits = limits
        self.store = store
        self._checks = Checks(limits)
        self._topics = Topics(store, self._checks, self.figures, namespace_ids, timer.time)
        self._registrar = Registrar(store, self._topics, timer.time, idle_ms)
        self._sender = Sender(store, self._topics, self._registrar, self._checks, timer)
        self._waiters = Waiters(store, timer, limits.max_waiters)
        self._control = TopicControl(store, self._topics, self._waiters, self._checks)
        self._pushes = PushControl(store, self._control, self._checks)
        self._jobs = JobCalls(store, self._topics, self._checks)
        self._bulk = BulkCalls(store, timer.time)
        self._deletion = TopicDeletion(store, self._topics, self._control, self._pushes, self._bulk)
        self._cleaner = Cleaner(store, self._registrar, self.figures, timer, idle_ms / 3000, round_s)
        roomy_sender = Sender(store, self._topics, self._registrar, Checks(roomy(limits)), timer)
        self._forwarder = Forwarder(store, self._topics, roomy_sender, self._carry, timer, round_s)
        self._sender.tell_partitions = roomy_sender.tell_partitions = self._control.tell_partitions
        self._cleaner.died = self._waiters.died = self._forwarder.died
        self._control.rerouted = self._forwarder.changed
        self._background: set[asyncio.Task[None]] = set()
        self._draining = False
        self._drained = asyncio.Event()
        self._time_s = timer.time
        self._topics.widened = self._waiters.widened
        store.events = self

    @property
    def waiters(self) -> int:
        """Pulls of this process that are not answered yet."""
        return self._waiters.count

    async def start(self) -> None:
        self._cleaner.start()
        self._forwarder.start()

    async def drain(self) -> None:
        """Answer parked pulls with nothing and refuse new sends and pulls. Acks and releases are still taken."""
        self._draining = True
        self._drained.set()
        self._waiters.drain()

    async def stop(self) -> None:
        """Drain: parked pulls are answered empty, new work is refused with Draining, loops end."""
        await self.drain()
        await self._waiters.stop()
        await self._cleaner.stop()
        await self._forwarder.stop()
        await self._registrar.stop()
        await self._topics.stop()
        while self._background:
            await asyncio.wait(self._background)

    # -- what the store tells

    def woken(self, partition: Partition) -> None:
        self._waiters.woken(partition)
        self._pushes.woken(partition)
        topic = self._topics.known(partition.namespace, partition.topic)
        if topic is not None and not topic.listed:
            self._reload(topic)  # it has come into being, maybe with more partitions than this one

    def noted(self, partition: Partition, at_ms: int) -> None:
        self._cleaner.noted(partition, at_ms)

    def unlisted(self, partition: Partition) -> None:
        self._registrar.unlisted(partition.namespace, partition.topic)

    def policy_changed(self, partition: Partition, version: int) -> None:
        topic = self._topics.known(partition.namespace, partition.topic)
        if topic is not None and topic.version < version:
            self._reload(topic)

    def _reload(self, topic: Topic) -> None:
        topic.read_at_s = self._time_s()
        self._spawn(self._topics.load(topic.namespace, topic.name))

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(_quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- sending

    def send(self, namespace: str, topic: str, command: Send) -> Awaitable[Sent]:
        """Store one job. Raises a DuelineError when it was refused."""
        if self._draining:
            raise Draining
        return self._sender.send(namespace, topic, command)

    def send_now(
        self, store: Callable[[Partition, SendItem, int], SendOutcome | None], namespace: str, topic: str, command: Send
    ) -> Sent | None:
        """The same from any thread, by a call of the store that needs no loop. None: nothing was done, await `send`."""
        return None if self._draining else self._sender.send_now(store, namespace, topic, command)

    async def send_many(self, namespace: str, topic: str, commands: Sequence[Send]) -> list[Sent | DuelineError]:
        """Store many; each has its own result, in order. A malformed one raises (field "[3].id"), nothing is stored."""
        if self._draining:
            raise Draining
        return await self._sender.send_many(namespace, topic, commands)

    def close_sends(self, why: str | None) -> None:
        """Refuse sends from now on, saying why; None: take them again."""
        self._sender.closed = why

    def watch_sends(self, watch: SendWatch) -> None:
        """Have somebody told of all sends through this engine, but for dead jobs that are sent on."""
        self._sender.watch = watch

    # -- consuming

    async def pull(self, command: Pull) -> list[LeasedJob]:
        """Due jobs under a lease; waits up to wait_ms. Cancelling the call takes the waiter out; a job that was already
        pulled for it is released without costing an attempt."""
        if self._draining:
            raise Draining
        self._checks.pull(command)
        topics = [await self._topics.get(command.namespace, name) for name in command.topics]
        self._checks.pull_partitions(sum(len(topic.partitions) for topic in topics))
        for topic in topics:
            if self._topics.is_old(topic):
                self._reload(topic)
        return await self._waiters.pull(
            topics, command.max, command.lease_ms, command.wait_ms, fails_fast=command.fails_fast
        )

    async def idle(self, wait_ms: int) -> None:
        """Wait as a pull does for which nothing comes: until the time is over, or the engine drains."""
        if self._draining:
            raise Draining
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._drained.wait()
        except TimeoutError:
            pass

    async def give_back(self, namespace: str, jobs: Sequence[LeasedJob]) -> None:
        """Release jobs whose answer could not be written, without costing an attempt."""
        by_partition: dict[Partition, list[LeasedJob]] = {}
        for job in jobs:
            topic = await self._topic(namespace, job.topic)
            by_partition.setdefault(topic.partition_of(job.id), []).append(job)
        for partition, some in by_partition.items():
            await self._waiters.give_back(partition, some)

    def undelivered(self, namespace: str, jobs: Sequence[LeasedJob]) -> None:
        """The same, from where nobody can wait for it: the client was gone before its answer could be written."""
        self._spawn(self.give_back(namespace, jobs))

    async def ack(self, namespace: str, topic: str, refs: Sequence[Ref]) -> list[Outcome]:
        return await self._jobs.ack(await self._topic(namespace, topic), refs)

    async def release(self, namespace: str, topic: str, items: Sequence[Release]) -> list[Outcome]:
        results = await self._jobs.release(await self._topic(namespace, topic), items)
        if any(result.code is Code.DEAD for result in results):
            self._forwarder.died(namespace, topic)
        return results

    async def extend(self, namespace: str, topic: str, items: Sequence[Extend]) -> list[Outcome]:
        return await self._jobs.extend(await self._topic(namespace, topic), items)

    # -- by id alone, in namespaces with `namespace_ids`

    async def ack_by_id(self, namespace: str, ids: Sequence[str]) -> list[Outcome]:
        """Ack, wherever the job is and whatever its live state. For protocols that know neither topic nor token."""
        return await self._jobs.ack(self._topics.everywhere(namespace), [Ref(id) for id in ids])

    async def cancel_by_id(self, namespace: str, ids: Sequence[str], forget: bool = False) -> list[Outcome]:
        return await self._jobs.cancel(self._topics.everywhere(namespace), ids, forget)

    async def get_by_id(self, namespace: str, id: str) -> Job:
        return await self._jobs.get(self._topics.everywhere(namespace), id)

    # -- jobs from outside

    async def cancel(
        self, namespace: str, topic: str, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        return await self._jobs.cancel(await self._topic(namespace, topic), ids, forget, spare)

    async def cancel_matching(self, namespace: str, topic: str, which: Filter, dry_run: bool) -> Bulk:
        self._checks.filter(which, LIVE)
        return await self._bulk.cancel(await self._topic(namespace, topic), which, dry_run)

    async def cancel_groups(self, namespace: str, topic: str, key: str, dry_run: bool = False) -> Bulk:
        """Cancel the merge groups of a key, open and closed, but those that a consumer holds."""
        check_name(key, "merge_key")
        return await self._bulk.cancel_groups(await self._topic(namespace, topic), key, dry_run)

    async def get(self, namespace: str, topic: str, id: str) -> Job:
        return await self._jobs.get(await self._topic(namespace, topic), id)

    async def patch(self, namespace: str, topic: str, patch: Patch) -> Job:
        return await self._jobs.patch(await self._topic(namespace, topic), patch)

    async def fire(self, namespace: str, topic: str, id: str) -> Outcome:
        return await self._jobs.fire(await self._topic(namespace, topic), id)

    async def list(self, namespace: str, topic: str, query: Query) -> Page:
        """Query.cursor and Page.cursor are the engine's own here (partition + the store's cursor)."""
        return await self._jobs.list(await self._topic(namespace, topic), query)

    # -- topics

    async def topics(
        self, namespace: str, after: str, limit: int, bands_ms: Sequence[int] = ()
    ) -> tuple[list[TopicView], str | None]:
        return await self._control.topics(namespace, after, limit, bands_ms)

    async def topic(self, namespace: str, topic: str, bands_ms: Sequence[int] = ()) -> TopicView:
        """A topic's figures and policy. NotFound when it was never seen. `waiters` are those of this process; 1 when
        there are only some in other processes. `bands_ms`: count what is due up to each of these times from now."""
        return await self._control.topic(namespace, topic, bands_ms)

    async def set_topic(self, namespace: str, topic: str, patch: TopicPatch) -> tuple[TopicView, bool]:
        """The view, and whether the topic is new."""
        return await self._control.set(namespace, topic, patch)

    async def delete_topic(self, namespace: str, topic: str) -> None:
        """Its policy, push target and ended jobs go with it. NotFound; TopicNotEmpty while it holds jobs."""
        await self._deletion.delete(namespace, topic)

    async def namespaces(self, after: str, limit: int) -> tuple[list[str], str | None]:
        """Namespaces that have a topic, by name; the cursor is the last one of the page."""
        return await self._control.namespaces(after, limit)

    async def pause(self, namespace: str, topic: str, until_ms: int | None) -> None:
        await self._control.pause(namespace, topic, until_ms)

    async def resume(self, namespace: str, topic: str) -> None:
        await self._control.resume(namespace, topic)

    # -- push targets

    async def set_push(self, namespace: str, topic: str, target: PushTarget) -> tuple[PushTarget, bool]:
        """Give the topic this target; it, and whether the topic had none."""
        return await self._pushes.set(namespace, topic, target)

    async def push_target(self, namespace: str, topic: str) -> PushTarget:
        """NotFound when there is none."""
        return await self._pushes.get(namespace, topic)

    async def remove_push(self, namespace: str, topic: str) -> None:
        await self._pushes.remove(namespace, topic)

    async def pause_push(self, namespace: str, topic: str) -> PushTarget:
        """Make no calls to the target until it is resumed. Pulls of others still get jobs."""
        return await self._pushes.pause(namespace, topic, True)

    async def resume_push(self, namespace: str, topic: str) -> PushTarget:
        return await self._pushes.pause(namespace, topic, False)

    async def pushing(self, namespace: str | None, after: str, limit: int) -> tuple[list[Pushing], str | None]:
        """Topics that have a target, of one namespace or of all, and the cursor of the next page."""
        return await self._pushes.page(namespace, after, limit)

    async def push_mark(self) -> int:
        """A number that grows whenever some process has changed some target: one cheap look."""
        return await self._pushes.mark()

    async def begin_push(self, namespace: str, topic: str) -> tuple[int, PushTarget | None]:
        """The version of the topic's config and its target, after its partitions have certainly heard its limits."""
        found = await self._control.tell_partitions(namespace, topic)
        return found.version, found.config.push

    async def _carry(self, namespace: str) -> None:
        """Give the topic through which dead jobs go to a URL its target, once."""
        if (await self._topic(namespace, ON_DEAD_TOPIC)).config.push is None:
            await self._pushes.set(namespace, ON_DEAD_TOPIC, ON_DEAD_TARGET)

    def tell_push_news(self, news: PushNews | None) -> None:
        """Tell this about every change of a target: of this process before its call is answered, of others when their
        bell rings, if somebody here pulls from the bell's topic (engine.push_control.MARK)."""
        self._pushes.news = news

    # -- the dead

    async def revive(
        self,
        namespace: str,
        topic: str,
        ids: Sequence[str],
        delay_ms: int = 0,
        max_attempts: int | None = None,
        set_max_attempts: bool = False,
    ) -> list[Outcome]:
        found = await self._topic(namespace, topic)
        return await self._jobs.revive(found, ids, delay_ms, max_attempts, set_max_attempts)

    async def revive_matching(
        self,
        namespace: str,
        topic: str,
        which: Filter,
        dry_run: bool,
        delay_ms: int = 0,
        max_attempts: int | None = None,
        set_max_attempts: bool = False,
    ) -> Bulk:
        self._checks.filter(which, frozenset({State.DEAD}))
        self._jobs.check_revive(delay_ms, max_attempts)
        found = await self._topic(namespace, topic)
        return await self._bulk.revive(found, which, dry_run, delay_ms, max_attempts, set_max_attempts)

    async def purge(self, namespace: str, topic: str, ids: Sequence[str]) -> list[Outcome]:
        return await self._jobs.purge(await self._topic(namespace, topic), ids)

    async def purge_matching(self, namespace: str, topic: str, which: Filter, dry_run: bool) -> Bulk:
        self._checks.filter(which, ENDED)
        return await self._bulk.purge(await self._topic(namespace, topic), which, dry_run)

    async def _topic(self, namespace: str, topic: str) -> Topic:
        return await self._topics.get(namespace, topic)


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    """Background work that will be asked for again if it mattered: a store that is down is not news here."""
    try:
        await work
    except DuelineError:
        pass
