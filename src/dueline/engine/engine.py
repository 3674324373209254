"""The engine makes every decision that is possible before the store call. It knows no wire format and no store key.

    dialect --Command--> Engine --items--> Store (one atomic call per partition)

It owns: validation against the limits (checks), times and policies to numbers (sending, patching), ids, the choice of
the partition, the cache of topic configs (topics), their change (control), the waiters, the cleaner, the registration
of topics (registrar) and recurring schedules (`schedules`). The life cycle itself is the contract of the store's
operations. This class is the interface: each method looks up the topic and delegates. The calls of every job also exist
as posts (completion): `done` gets the result or the error, and an error may also be raised.

The caller starts the store before the engine and stops it after the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..rights import EVERYTHING, Grant
from .audit import Audit
from .bulk import BulkCalls
from .charts import ChartRecorder
from .checks import Checks
from .cleaner import ROUND_S, Cleaner
from .commands import Bulk, Filter, Patch, Pull, Send, Sent, TopicPatch, TopicView
from .completion import Done, PendingCall, awaited, leave, poll, quietly
from .control import TopicControl
from .deletion import TopicDeletion
from .directory import TopicChange
from .errors import Draining, DuelineError
from .event_feeds import EventFeeds
from .expansion import Expansions
from .forecasts import Forecasts
from .forwarder import Forwarder
from .history import History
from .job import ENDED, LIVE, Job, LeasedJob, Partition, State
from .job_calls import JobCalls
from .limits import Limits, check_name
from .metrics import EngineMetrics
from .on_dead import ON_DEAD_TARGET, ON_DEAD_TOPIC, forwarding_limits
from .open_groups import GroupPage
from .puller import Puller
from .push_control import PushControl
from .push_target import PushTarget, PushTopic
from .recorder import Recorder
from .registrar import IDLE_MS, Registrar
from .schedule_runner import ScheduleRunner
from .schedules import Schedules
from .sender import Sender, SendLimit, SendWatch
from .store import Code, Extend, Outcome, Page, Query, Ref, Release, SendItem, SendOutcome, Spare, Store
from .timer import LoopTimer, Timer
from .tokens import Tokens
from .topic_changes import TopicChanges, TopicListener
from .topics import Topic, Topics
from .waiters import Waiters


class Engine:
    """Every operation of the native API as a method. All topics are given as (namespace, topic).

    `namespace_ids`: namespaces whose ids are unique over all their topics. `idle_ms`: after this time an unused, empty
    topic is removed from the directory. `round_s`: how often to look for work that other processes left behind.
    `metrics`: the metrics of this process. `timer` can be replaced in tests. `process_name` and `max_audit_entries` are
    for the audit log (audit).
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
        process_name: str = "",
        max_audit_entries: int = 0,
    ) -> None:
        timer = timer or LoopTimer()
        self.metrics = EngineMetrics()
        self.limits = limits
        self.store = store
        self.audit = Audit(store.audit, max_audit_entries, process_name)
        self._recorder = Recorder(store, timer)
        self.feeds = EventFeeds(store, timer)
        self._checks = Checks(limits)
        self._topics = Topics(store, self._checks, self.metrics, namespace_ids, timer.time)
        self._registrar = Registrar(store, self._topics, timer.time, idle_ms)
        self._sender = Sender(store, self._topics, self._registrar, self._checks, timer)
        self._waiters = Waiters(store, timer, limits.max_waiters)
        self._puller = Puller(self._topics, self._waiters, self._checks)
        self._changes = TopicChanges(store, self._topics, timer, round_s)
        self._control = TopicControl(store, self._topics, self._changes, self._waiters, self._checks, self._recorder)
        self.forecasts = Forecasts(store, self._topics, self._checks, timer.time)
        self.charts = ChartRecorder(store, self._topics, self.metrics, timer, round_s)
        self._expansions = Expansions(store, self._topics, self._control, timer, round_s)
        self._control.advance = self._expansions.advance
        self._pushes = PushControl(store, self._control, self._checks)
        self._jobs = JobCalls(store, self._topics, self._checks)
        self._bulk = BulkCalls(store, timer.time)
        self._deletion = TopicDeletion(store, self._topics, self._changes, self._control, self._bulk, self._recorder)
        self._cleaner = Cleaner(store, self._registrar, self.metrics, timer, idle_ms / 3000, round_s)
        roomy_sender = Sender(store, self._topics, self._registrar, Checks(forwarding_limits(limits)), timer)
        self.tokens = Tokens(store, timer)
        self._forwarder = Forwarder(store, self._topics, roomy_sender, self._carry, timer, round_s)
        self._runner = ScheduleRunner(
            store, self._topics, self._waiters, self._jobs, self._sender, self.metrics.schedules, timer
        )
        self.schedules = Schedules(
            store, self._topics, self._control, self._jobs, self._sender, self._checks, self._runner
        )
        self._sender.tell_partitions = roomy_sender.tell_partitions = self._control.tell_partitions
        self._changes.tell_partitions = self._control.tell_partitions
        self._cleaner.died = self._waiters.died = self._forwarder.died
        self._background: set[asyncio.Task[None]] = set()
        self._draining = False
        self._time_s = timer.time
        self._topics.moved = self._moved
        self._waiters.outdated = self._reload
        store.events = self

    @property
    def waiters(self) -> int:
        """Pulls of this process that are not answered yet."""
        return self._waiters.count

    async def start(self) -> None:
        await self._recorder.start()
        self._cleaner.start()
        self.charts.start()
        self._forwarder.start()
        self._expansions.start()
        self._runner.start()
        self._changes.follow(self._forwarder)
        self._changes.follow(self._runner)

    async def drain(self) -> None:
        """Return no jobs to waiting pulls and refuse new sends and pulls. Acks and releases are still accepted."""
        self._draining = True
        self._puller.drain()
        self._waiters.drain()
        self.feeds.drain()

    async def stop(self) -> None:
        """Drain and end the background loops. Waiting pulls return no jobs; new work is refused with Draining."""
        await self.drain()
        await self._runner.stop()
        await self._waiters.stop()
        await self._changes.stop()
        await self._cleaner.stop()
        await self._expansions.stop()
        await self._forwarder.stop()
        await self._registrar.stop()
        await self.charts.stop()
        await self.forecasts.stop()
        await self._topics.stop()
        await self.audit.stop()
        while self._background:
            await asyncio.wait(self._background)
        await self.feeds.stop()
        await self._recorder.stop()

    # -- events from the store

    def woken(self, partition: Partition) -> None:
        self._waiters.woken(partition)

    def noted(self, partition: Partition, at_ms: int) -> None:
        self._cleaner.noted(partition, at_ms)

    def unlisted(self, partition: Partition) -> None:
        self._registrar.unlisted(partition.namespace, partition.topic)

    def topic_changed(self, change: TopicChange | None) -> None:
        self._changes.announced(change)

    def _moved(self, topic: Topic, before: Sequence[Partition]) -> None:
        self._waiters.moved(topic, before)
        self._expansions.wake()
        if topic.namespace_ids and topic.name and topic.config.push is not None:
            self._spawn(self._control.tell_partitions(topic.namespace, topic.name))  # its limit is divided otherwise

    def _reload(self, topic: Topic) -> None:
        """Read the topic from the directory, because a partition has another config than this process. Not at every
        call: if the process that changed the topic died, the partition keeps its old config until the topic is used."""
        if not self._topics.is_fresh(topic):
            topic.read_at_s = self._time_s()
            self._spawn(self._topics.load(topic.namespace, topic.name))

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- sending

    async def send(self, namespace: str, topic: str, command: Send, grant: Grant = EVERYTHING) -> Sent:
        return await awaited(self.post_send, namespace, topic, command, grant)

    def post_send(self, namespace: str, topic: str, command: Send, grant: Grant, done: Done) -> None:
        """Store one job. `grant`: of the caller, whose token may have limits."""
        if self._draining:
            raise Draining
        self._sender.post(namespace, topic, command, grant, done)

    def send_now(
        self, store: Callable[[Partition, SendItem, int], SendOutcome | None], namespace: str, topic: str, command: Send
    ) -> Sent | None:
        """Send from any thread, with a store call that needs no event loop. None: nothing was sent; await `send`."""
        return None if self._draining else self._sender.send_now(store, namespace, topic, command)

    async def send_many(
        self, namespace: str, topic: str, commands: Sequence[Send], grant: Grant = EVERYTHING
    ) -> list[Sent | DuelineError]:
        """Store many jobs and return one result each, in order. If one is malformed, raises (field "[3].id") and stores
        nothing."""
        if self._draining:
            raise Draining
        return await self._sender.send_many(namespace, topic, commands, grant)

    def limit_sends(self, limit: SendLimit) -> None:
        """Ask `limit` before every send through this engine, except forwarded dead jobs."""
        self._sender.limit = limit

    def watch_sends(self, watch: SendWatch) -> None:
        """Report all sends through this engine to `watch`, except forwarded dead jobs."""
        self._sender.watch = watch

    # -- consuming

    async def pull(self, command: Pull) -> list[LeasedJob]:
        return await poll(self.post_pull, command)

    def post_pull(self, command: Pull, done: Done) -> PendingCall:
        if self._draining:
            raise Draining
        return self._puller.post(command, done)

    async def idle(self, wait_ms: int) -> None:
        """Wait like a pull that gets no job: until the time is up or the engine drains."""
        if self._draining:
            raise Draining
        await self._puller.idle(wait_ms)

    async def give_back(self, namespace: str, jobs: Sequence[LeasedJob]) -> None:  # without costing an attempt
        await self._puller.give_back(namespace, jobs)

    def undelivered(self, namespace: str, jobs: Sequence[LeasedJob]) -> None:
        """Like `give_back`, for callers that cannot await: the client disconnected before its answer was written."""
        self._spawn(self.give_back(namespace, jobs))

    async def ack(self, namespace: str, topic: str, refs: Sequence[Ref]) -> list[Outcome]:
        return await self._jobs.ack(await self._topic(namespace, topic), refs)

    def post_ack(self, namespace: str, topic: str, refs: Sequence[Ref], done: Done) -> None:
        found = self._topics.known(namespace, topic)
        if found is None or not found.listed:
            leave(self.ack(namespace, topic, refs), done)
        else:
            self._jobs.post_ack(found, refs, done)

    async def release(self, namespace: str, topic: str, items: Sequence[Release]) -> list[Outcome]:
        results = await self._jobs.release(await self._topic(namespace, topic), items)
        if any(result.code is Code.DEAD for result in results):
            self._forwarder.died(namespace, topic)
        return results

    async def extend(self, namespace: str, topic: str, items: Sequence[Extend]) -> list[Outcome]:
        return await self._jobs.extend(await self._topic(namespace, topic), items)

    # -- by id alone, in namespaces with `namespace_ids`

    def has_namespace_ids(self, namespace: str) -> bool:
        """Whether ids of this namespace are unique over all its topics. A send with an id may then move or reveal a job
        of another topic."""
        return self._topics.has_namespace_ids(namespace)

    async def ack_by_id(self, namespace: str, ids: Sequence[str]) -> list[Outcome]:
        """Ack a job in any topic and any live state. For protocols that know neither topic nor token."""
        return await self._jobs.ack(await self._topics.everywhere(namespace), [Ref(id) for id in ids])

    def post_ack_by_id(self, namespace: str, ids: Sequence[str], done: Done) -> None:
        topic = self._topics.shared(namespace)
        if topic is None:
            leave(self.ack_by_id(namespace, ids), done)
        else:
            self._jobs.post_ack(topic, [Ref(id) for id in ids], done)

    async def cancel_by_id(self, namespace: str, ids: Sequence[str], forget: bool = False) -> list[Outcome]:
        return await self._jobs.cancel(await self._topics.everywhere(namespace), ids, forget)

    async def get_by_id(self, namespace: str, id: str) -> Job:
        return await self._jobs.get(await self._topics.everywhere(namespace), id)

    # -- jobs, without a lease

    async def cancel(
        self, namespace: str, topic: str, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        return await self._jobs.cancel(await self._topic(namespace, topic), ids, forget, spare)

    async def cancel_matching(self, namespace: str, topic: str, which: Filter, dry_run: bool) -> Bulk:
        self._checks.filter(which, LIVE)
        return await self._bulk.cancel(await self._topic(namespace, topic), which, dry_run)

    async def cancel_groups(self, namespace: str, topic: str, key: str, dry_run: bool = False) -> Bulk:
        """Cancel the merge groups of a key, open and closed, except leased ones."""
        check_name(key, "merge_key")
        return await self._bulk.cancel_groups(await self._topic(namespace, topic), key, dry_run)

    async def get(self, namespace: str, topic: str, id: str) -> Job:
        return await self._jobs.get(await self._topic(namespace, topic), id)

    async def history(self, namespace: str, topic: str, id: str) -> History:
        return await self._jobs.history(await self._topic(namespace, topic), id)

    async def patch(self, namespace: str, topic: str, patch: Patch) -> Job:
        return await self._jobs.patch(await self._topic(namespace, topic), patch)

    async def fire(self, namespace: str, topic: str, id: str) -> Outcome:
        return await self._jobs.fire(await self._topic(namespace, topic), id)

    async def list(self, namespace: str, topic: str, query: Query) -> Page:
        """List jobs. Query.cursor and Page.cursor are the engine's own (partition + the store's cursor)."""
        return await self._jobs.list(await self._topic(namespace, topic), query)

    async def groups(self, namespace: str, topic: str, cursor: bytes, limit: int) -> GroupPage:
        """Open merge groups. Cursors are the engine's own, as for `list`."""
        return await self._jobs.groups(await self._topic(namespace, topic), cursor, limit)

    async def quiet_ms(self, namespace: str, topic: str) -> int | None:
        """The quiet time of merge groups in the topic's policy."""
        merge = (await self._topic(namespace, topic)).config.policy.merge
        return None if merge is None else merge.quiet_ms

    # -- topics

    async def topics(
        self, namespace: str, after: str, limit: int, bands_ms: Sequence[int] = ()
    ) -> tuple[list[TopicView], str | None]:
        return await self._control.topics(namespace, after, limit, bands_ms)

    async def topic(self, namespace: str, topic: str, bands_ms: Sequence[int] = ()) -> TopicView:
        """A topic's counts and policy. Raises NotFound if the topic was never used. `waiters` counts those of this
        process, or is 1 if only other processes have some. `bands_ms`: count the jobs due within each time."""
        return await self._control.topic(namespace, topic, bands_ms)

    async def set_topic(self, namespace: str, topic: str, patch: TopicPatch) -> tuple[TopicView, bool]:
        """The view, and whether the topic is new."""
        return await self._control.set(namespace, topic, patch)

    async def delete_topic(self, namespace: str, topic: str) -> None:
        """Delete a topic with its policy, push target and ended jobs. Raises NotFound, or TopicNotEmpty while it holds
        jobs."""
        await self._deletion.delete(namespace, topic)

    async def namespaces(self, after: str, limit: int) -> tuple[list[str], str | None]:
        """Namespaces that have a topic, by name; the cursor is the last one of the page."""
        return await self._control.namespaces(after, limit)

    async def pause(self, namespace: str, topic: str, until_ms: int | None) -> None:
        await self._control.pause(namespace, topic, until_ms)

    async def resume(self, namespace: str, topic: str) -> None:
        await self._control.resume(namespace, topic)

    def follow_topics(self, listener: TopicListener) -> None:
        """Tell `listener` the config of every topic that has one, then each change; our own before its call returns."""
        self._changes.follow(listener)

    def unfollow_topics(self, listener: TopicListener) -> None:
        self._changes.unfollow(listener)

    # -- push targets

    async def set_push(self, namespace: str, topic: str, target: PushTarget) -> tuple[PushTarget, bool]:
        """Give the topic this target. Returns the target and whether the topic had none before."""
        return await self._pushes.set(namespace, topic, target)

    async def push_target(self, namespace: str, topic: str) -> PushTarget:
        """Raises NotFound if there is none."""
        return await self._pushes.get(namespace, topic)

    async def remove_push(self, namespace: str, topic: str) -> None:
        await self._pushes.remove(namespace, topic)

    async def pause_push(self, namespace: str, topic: str) -> PushTarget:
        """Make no calls to the target until it is resumed. Jobs can still be pulled."""
        return await self._pushes.pause(namespace, topic, True)

    async def resume_push(self, namespace: str, topic: str) -> PushTarget:
        return await self._pushes.pause(namespace, topic, False)

    async def push_topics(self, namespace: str | None, after: str, limit: int) -> tuple[list[PushTopic], str | None]:
        return await self._pushes.page(namespace, after, limit)

    async def _carry(self, namespace: str) -> None:
        """Set the target of the internal topic that carries dead jobs to a URL; done once."""
        if (await self._topic(namespace, ON_DEAD_TOPIC)).config.push is None:
            await self._pushes.set(namespace, ON_DEAD_TOPIC, ON_DEAD_TARGET)

    # -- dead jobs

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
