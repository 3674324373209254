"""The push manager runs one dispatcher for each topic that has a push target.

It learns of targets from engine.topic_changes. A change made by this process takes effect before its call is answered,
one made by another process a few milliseconds later. A target's limits are in every partition of its topic before its
dispatcher starts.
"""

from __future__ import annotations

import asyncio

from ..engine.push_target import PushTopic
from ..engine.topics import TopicConfig
from .dispatcher import Dispatcher, PushContext

Name = tuple[str, str]


class PushManager:
    """Runs a dispatcher for each push topic, from `start` to `stop`."""

    def __init__(self, context: PushContext) -> None:
        self._context = context
        self._engine = context.engine
        self._dispatchers: dict[Name, Dispatcher] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._stopping = False

    @property
    def topics(self) -> list[Name]:
        """The topics that this process pushes."""
        return list(self._dispatchers)

    def start(self) -> None:
        if not self._stopping:
            self._engine.follow_topics(self)

    def topic_changed(self, namespace: str, topic: str, version: int, config: TopicConfig | None) -> None:
        """The topic has this config, and all its partitions know. No call starts by a previous target any more."""
        if self._stopping:
            return
        name = (namespace, topic)
        target = None if config is None else config.push
        dispatcher = self._dispatchers.get(name)
        if target is None or target.courier not in self._context.couriers:
            if dispatcher is not None:
                self._dismiss(name, dispatcher)
        elif dispatcher is None:
            self._dispatchers[name] = Dispatcher(PushTopic(*name, version, target), self._context)
            self._dispatchers[name].start()
        elif dispatcher.push_topic.version < version:
            dispatcher.retarget(PushTopic(*name, version, target))

    async def stop(self, drain_s: float) -> None:
        """Stop pulling. Give running calls this long to finish, then release the remaining jobs."""
        self._stopping = True
        self._engine.unfollow_topics(self)
        await asyncio.gather(*(one.stop(drain_s) for one in self._dispatchers.values()))
        self._dispatchers.clear()
        for task in self._leaving:
            task.cancel()
        if self._leaving:
            await asyncio.wait(self._leaving)

    def hurry(self) -> None:
        """Abort the calls that `stop` still waits for; their jobs are released now."""
        for dispatcher in self._dispatchers.values():
            dispatcher.hurry()

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
