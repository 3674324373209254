"""The push manager runs one dispatcher for each topic that has a push target.

At start it finds the targets by paging through the directory. A change made by this process takes effect before its
call is answered. A change made by another process is announced (engine.push_control); the manager then reads one number
in the directory, and reads the pages again only if that number changed. Announcements may be missed, so the number is
also read every 30 s. A process may die between writing a target and changing the number; a full scan every 10 minutes
covers that.

Before a dispatcher's first pull, the target's limits are written to every partition of its topic, because the process
that set the target may have died before it could write them.
"""

from __future__ import annotations

import asyncio

from ..engine.commands import Pull
from ..engine.errors import DuelineError, NotFound
from ..engine.push_control import MARK
from ..engine.push_target import Pushing, PushTarget
from ..engine.rounds import Rounds
from ..engine.store import Ref
from .dispatcher import WAIT_MS, Dispatcher, PushContext

LOOK_S = 30.0
WHOLE_LOOK_S = 600.0
BACK_OFF_S = 1.0
PAGE = 500
AT_ONCE = 16  # dispatchers that start concurrently
CALM = 10.0  # after a look, rest this many times as long as it took, however many announcements arrive

Name = tuple[str, str]


class PushManager:
    """Use `start` and `stop`. `look` reads what has changed; tests call it instead of waiting."""

    def __init__(self, means: PushContext) -> None:
        self._means = means
        self._engine = means.engine
        self._timer = means.timer
        self._dispatchers: dict[Name, Dispatcher] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._versions: dict[Name, int] = {}  # of the applied configs; older ones are ignored
        self._mark = -1
        self._whole_at_s = 0.0
        self._rounds = Rounds(self._round, means.timer, "looking for push targets failed", calm=CALM)
        self._listening: asyncio.Task[None] | None = None

    @property
    def topics(self) -> list[Name]:
        """The topics that this process pushes."""
        return list(self._dispatchers)

    def start(self) -> None:
        if self._listening is None and not self._rounds.stopping:
            self._engine.tell_push_news(self)
            self._rounds.start()
            self._listening = asyncio.get_running_loop().create_task(self._listen())

    def changed(self, namespace: str, topic: str, version: int, target: PushTarget | None) -> None:
        """This process has set, changed or removed the topic's target, and all its partitions know. No call starts by
        the previous target any more."""
        self._apply((namespace, topic), version, target)

    def marked(self, mark: int) -> None:
        """Remember the directory's number after our own change, so that it triggers no look."""
        if mark == self._mark + 1:
            self._mark = mark

    def rang(self) -> None:
        """A change of a target was announced."""
        self._rounds.wake()

    async def stop(self, drain_s: float) -> None:
        """Stop pulling. Give running calls this long to finish, then release the remaining jobs."""
        self._rounds.end()
        self._engine.tell_push_news(None)
        if self._listening is not None:
            self._listening.cancel()
        await asyncio.gather(*(one.stop(drain_s) for one in self._dispatchers.values()))
        self._dispatchers.clear()
        for task in self._leaving:
            task.cancel()
        rest = {task for task in (self._listening, *self._leaving) if task is not None}
        if rest:
            await asyncio.wait(rest)
        await self._rounds.stop()

    def hurry(self) -> None:
        """Abort the calls that `stop` still waits for; their jobs are released now."""
        for dispatcher in self._dispatchers.values():
            dispatcher.hurry()

    async def _round(self) -> float:
        await self.look()
        return LOOK_S

    async def _listen(self) -> None:
        """Wait for announcements. They wake the processes that pull from the MARK topic; a job that is pulled there is
        acked."""
        limits = self._engine.limits
        wait_ms = min(WAIT_MS, limits.max_wait_ms)
        pull = Pull(MARK[0], (MARK[1],), 1, None, wait_ms)
        while not self._rounds.stopping:
            try:
                jobs = await self._engine.pull(pull)
                await self._engine.ack(*MARK, [Ref(job.id, job.lease) for job in jobs])
                rest_s = 0.0 if wait_ms >= 1000 else LOOK_S
            except DuelineError:
                rest_s = BACK_OFF_S
            await self._rest(rest_s)

    async def _rest(self, rest_s: float) -> None:
        if rest_s > 0:
            over = asyncio.Event()
            handle = self._timer.call_later(rest_s, over.set)
            try:
                await over.wait()
            finally:
                handle.cancel()

    async def look(self) -> None:
        """Read all targets if any process has changed one since the last look."""
        mark = await self._engine.push_mark()
        now_s = self._timer.time()
        if mark == self._mark and now_s < self._whole_at_s:
            return
        seen: set[Name] = set()
        after: str | None = ""
        while after is not None and not self._rounds.stopping:
            page, after = await self._engine.pushing(None, after, PAGE)
            seen |= {(one.namespace, one.topic) for one in page}
            for start in range(0, len(page), AT_ONCE):
                await asyncio.gather(*(self._heed_version(one) for one in page[start : start + AT_ONCE]))
        if self._rounds.stopping:
            return
        for name in [name for name in self._dispatchers if name not in seen]:
            await self._heed(name)
        self._mark = mark
        self._whole_at_s = now_s + WHOLE_LOOK_S

    async def _heed_version(self, found: Pushing) -> None:
        dispatcher = self._dispatchers.get((found.namespace, found.topic))
        if dispatcher is None or dispatcher.pushing.version < found.version:
            await self._heed((found.namespace, found.topic))

    async def _heed(self, name: Name) -> None:
        """Update this topic's dispatcher from the directory, after writing the limits to all partitions."""
        try:
            version, target = await self._engine.begin_push(*name)
        except NotFound:
            version, target = self._versions.get(name, 0), None  # the topic was deleted
        self._apply(name, version, target)

    def _apply(self, name: Name, version: int, target: PushTarget | None) -> None:
        if self._rounds.stopping or version < self._versions.get(name, 0):
            return
        self._versions[name] = version
        dispatcher = self._dispatchers.get(name)
        if target is None or target.courier not in self._means.couriers:
            if dispatcher is not None:
                self._dismiss(name, dispatcher)
        elif dispatcher is not None:
            dispatcher.retarget(Pushing(*name, version, target))
        else:
            self._dispatchers[name] = Dispatcher(Pushing(*name, version, target), self._means)
            self._dispatchers[name].start()

    def _dismiss(self, name: Name, dispatcher: Dispatcher) -> None:
        """The target was removed. Calls in progress are not interrupted."""
        del self._dispatchers[name]
        task = asyncio.get_running_loop().create_task(self._leave(dispatcher))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, dispatcher: Dispatcher) -> None:
        try:
            await dispatcher.stop(None)
        except asyncio.CancelledError:
            await dispatcher.stop(0)
