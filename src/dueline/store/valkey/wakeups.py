"""Announcements of the scripts: a job of a partition became deliverable earlier than expected (a wake-up), or a topic
changed.

There is one subscriber connection per node. An announcement is lost only with its connection. When one breaks, every
channel on it is subscribed again, and each callback is told once that it may have missed some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import redis.asyncio as redis
from redis.exceptions import RedisError

from .link import Link, LinkLost

PING_S = 5.0

Callback = Callable[[bytes | None], None]  # called with each message; None: some may have been missed


class _Node:
    """One subscriber connection: its channels, and the callers that wait for a subscription to be confirmed."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.pubsub: Any = client.pubsub()
        self.callbacks: dict[str, Callback] = {}
        self.confirmed: set[str] = set()
        self.waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.task: asyncio.Task[None] | None = None
        self.down = False  # the connection broke; all channels are subscribed again when it is back
        self.writing = asyncio.Lock()  # redis-py's PubSub connects at its first command, so commands must not overlap

    def answer(self, channel: str) -> None:
        """A subscription was confirmed; resume the callers that wait for it."""
        for future in self.waiting.pop(channel, []):
            if not future.done():
                future.set_result(None)


class Wakeups:
    """The subscriptions of a process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._nodes: dict[str, _Node] = {}
        self._where: dict[str, str] = {}  # channel -> node
        self.reconnects = 0

    async def watch(self, channel: str, callback: Callback) -> None:
        """Returns when the store has confirmed the subscription, or when it cannot be reached. In the latter case
        `callback` is called with None once the subscription is confirmed."""
        name, client = self._link.subscriber(channel)
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node(client)
        else:
            await client.aclose()
        node.callbacks[channel] = callback
        self._where[channel] = name
        if channel in node.confirmed or node.down:
            return
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        node.waiting.setdefault(channel, []).append(confirmed)
        if node.task is None:
            node.task = asyncio.get_running_loop().create_task(self._listen(node))
        else:
            try:
                async with node.writing:
                    await node.pubsub.ssubscribe(channel)
            except (RedisError, OSError):
                pass  # the listener notices and subscribes to everything again
        await asyncio.wait([confirmed], timeout=2.0)

    async def unwatch(self, channel: str) -> None:
        name = self._where.pop(channel, None)
        node = self._nodes.get(name) if name is not None else None
        if node is None or node.callbacks.pop(channel, None) is None:
            return
        node.confirmed.discard(channel)
        if not node.callbacks:
            await self._close(self._nodes.pop(str(name)))
            return
        try:
            async with node.writing:
                await node.pubsub.sunsubscribe(channel)
        except (RedisError, OSError):
            pass

    async def stop(self) -> None:
        nodes, self._nodes = list(self._nodes.values()), {}
        self._where.clear()
        for node in nodes:
            await self._close(node)

    async def _close(self, node: _Node) -> None:
        if node.task is not None:
            node.task.cancel()
            await asyncio.wait([node.task])
        try:
            await node.pubsub.aclose()
            await node.client.aclose()
        except (RedisError, OSError):
            pass

    async def _listen(self, node: _Node) -> None:
        pause, first = 0.05, True
        while True:
            try:
                async with node.writing:
                    if not first:
                        self.reconnects += 1
                        await node.pubsub.aclose()
                        node.pubsub = node.client.pubsub()
                    for channel in list(node.callbacks):
                        await node.pubsub.ssubscribe(channel)
                await self._hear(node, not first)
            except (TimeoutError, RedisError, OSError, LinkLost):
                node.confirmed.clear()
                node.down = True
                for channel in list(node.waiting):
                    node.answer(channel)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
            first = False

    async def _hear(self, node: _Node, again: bool) -> None:
        silent = False
        while True:
            message = await node.pubsub.get_message(ignore_subscribe_messages=False, timeout=PING_S)
            if message is None:
                if silent:
                    raise OSError("no answer to a ping")
                silent = True
                async with node.writing:
                    await node.pubsub.ping()
                continue
            silent = False
            kind, channel = message["type"], _text(message["channel"])
            if kind == "ssubscribe":
                node.confirmed.add(channel)
                node.down = False
                node.answer(channel)
                if again and (callback := node.callbacks.get(channel)) is not None:
                    callback(None)  # messages published in the meantime were lost
            elif kind == "smessage" and (callback := node.callbacks.get(channel)) is not None:
                callback(message["data"])
            elif kind == "sunsubscribe" and channel in node.callbacks:
                raise OSError("the slot moved to another node")


def _text(channel: Any) -> str:
    if isinstance(channel, bytes):
        return channel.decode()
    return "" if channel is None else str(channel)
