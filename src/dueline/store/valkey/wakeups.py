"""Announcements of the scripts: a job of a partition became deliverable earlier than expected (a wake-up), or a topic
changed.

There is one subscriber connection per node, and a channel is subscribed at the primary of its slot. An announcement is
lost only with its connection, or while its channel moves to another node. Then the channel is subscribed where it is
now, and its callback gets one call, because announcements may have been missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import MovedError

from ...store_address import Endpoint
from .link import Link, LinkLost, NotNow, WrongKind
from .resp import Replies, command

PING_S = 5.0
FAILOVER_PING_S = 1.0  # where another node may take over, a silent one must be noticed soon
SILENCE_S = 5.0  # an unanswered ping ends the connection
SUSPECT_S, SUSPECT_AGAIN_S = 0.5, 0.1  # an unanswered ping is a reason to ask who the primary is
CONFIRMED_WITHIN_S = 2.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0  # before a node is tried again
FAILOVER_PAUSE_S = 0.1  # the longest where another node may take over

Callback = Callable[[bytes | None], None]  # called with each message; None: some may have been missed


class Wakeups:
    """The subscriptions of a process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        link.watch(self._topology_changed)
        self._callbacks: dict[str, Callback] = {}
        self._unplaced: set[str] = set()  # channels without a subscriber
        self._missed: set[str] = set()  # channels that may have missed announcements
        self._confirmations: dict[str, list[asyncio.Future[None]]] = {}
        self._subscribers: dict[Endpoint, _Subscriber] = {}
        self._task: asyncio.Task[None] | None = None  # finds subscribers for the unplaced channels
        self._failing = False
        self._changed = asyncio.Event()  # the layout has changed

    async def watch(self, channel: str, callback: Callback) -> None:
        """Returns when the store has confirmed the subscription, or when it cannot be reached. In the latter case
        `callback` is called with None once the subscription is confirmed."""
        known = channel in self._callbacks
        self._callbacks[channel] = callback
        if not known:
            self._unplaced.add(channel)
            self._work()
        elif any(channel in one.confirmed for one in self._subscribers.values()):
            return
        if self._failing:
            self._missed.add(channel)
            return
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._confirmations.setdefault(channel, []).append(confirmed)
        await asyncio.wait([confirmed], timeout=CONFIRMED_WITHIN_S)
        if not confirmed.done():
            self._missed.add(channel)

    async def unwatch(self, channel: str) -> None:
        if self._callbacks.pop(channel, None) is None:
            return
        self._unplaced.discard(channel)
        self._missed.discard(channel)
        self._confirm(channel)
        for subscriber in list(self._subscribers.values()):
            if channel in subscriber.channels:
                subscriber.unsubscribe([channel])
                if not subscriber.channels:
                    self._drop(subscriber)

    async def stop(self) -> None:
        self._callbacks.clear()
        self._unplaced.clear()
        for channel in list(self._confirmations):
            self._confirm(channel)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        for subscriber in list(self._subscribers.values()):
            self._drop(subscriber)

    # --- placing channels ---

    def _work(self) -> None:
        if self._task is None and self._unplaced:
            self._task = asyncio.get_running_loop().create_task(self._place_all())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as seen

    async def _place_all(self) -> None:
        """Subscribe the unplaced channels at the nodes that own them."""
        pause_s = FIRST_PAUSE_S
        try:
            while self._unplaced:
                self._changed.clear()
                owners = await self._by_owner()
                placed = await asyncio.gather(*(self._placed(*one) for one in owners.items()))
                self._failing = not all(placed)
                if self._failing:
                    self._missed |= self._unplaced
                    for channel in self._unplaced:
                        self._confirm(channel)
                    changed = asyncio.ensure_future(self._changed.wait())
                    await asyncio.wait([changed], timeout=pause_s)
                    changed.cancel()
                    pause_s = min(pause_s * 2, FAILOVER_PAUSE_S if self._link.fails_over else LONGEST_PAUSE_S)
        finally:
            self._task = None

    async def _placed(self, endpoint: Endpoint | None, channels: set[str]) -> bool:
        """Subscribe channels at a node. False: it cannot be reached."""
        subscriber = None if endpoint is None else await self._subscriber(endpoint)
        if subscriber is None:
            return False
        here = [one for one in channels & self._unplaced if self._link.owner_now(one) == endpoint]
        self._unplaced.difference_update(here)
        subscriber.subscribe(here)
        if not subscriber.channels:
            self._drop(subscriber)
        return True

    async def _by_owner(self) -> dict[Endpoint | None, set[str]]:
        """The unplaced channels by the node that owns them; None: it is not known."""
        found: dict[Endpoint | None, set[str]] = {}
        for channel in list(self._unplaced):
            owner: Endpoint | None = None
            if None not in found:  # do not ask again for every channel of a store that is away
                try:
                    owner = await self._link.owner(channel)
                except (LinkLost, NotNow, WrongKind):
                    pass
            else:
                owner = self._link.owner_now(channel)
            found.setdefault(owner, set()).add(channel)
        return found

    async def _subscriber(self, endpoint: Endpoint) -> _Subscriber | None:
        subscriber = self._subscribers.get(endpoint)
        if subscriber is None:
            try:
                connection = await self._link.open(endpoint)
            except LinkLost:
                self._look_again()
                return None
            ping_s = FAILOVER_PING_S if self._link.fails_over else PING_S
            subscriber = self._subscribers[endpoint] = _Subscriber(self, endpoint, connection, ping_s)
        return subscriber

    def _topology_changed(self) -> None:
        """Slots have other owners: their channels leave the nodes that do not own them any more."""
        self._changed.set()
        for subscriber in list(self._subscribers.values()):
            moved = [one for one in subscriber.channels if self._link.owner_now(one) != subscriber.endpoint]
            if len(moved) == len(subscriber.channels):
                self._drop(subscriber)
            else:
                subscriber.unsubscribe(moved)
            self.release(moved)

    def _look_again(self) -> None:
        if self._link.fails_over:
            self._link.find()

    def _drop(self, subscriber: _Subscriber) -> None:
        if self._subscribers.get(subscriber.endpoint) is subscriber:
            del self._subscribers[subscriber.endpoint]
        subscriber.close()

    def _confirm(self, channel: str) -> None:
        for future in self._confirmations.pop(channel, []):
            if not future.done():
                future.set_result(None)

    # --- reports of a subscriber ---

    def confirmed(self, channel: str) -> None:
        self._confirm(channel)
        if channel in self._missed and (callback := self._callbacks.get(channel)) is not None:
            self._missed.discard(channel)
            callback(None)

    def announced(self, channel: str, message: bytes) -> None:
        if (callback := self._callbacks.get(channel)) is not None:
            callback(message)

    def suspected(self) -> None:
        self._look_again()

    def redirected(self, asked: Endpoint, error: MovedError) -> None:
        self._link.moved(asked, error)

    def release(self, channels: Iterable[str]) -> None:
        """These channels have no subscriber any more."""
        unplaced = {one for one in channels if one in self._callbacks}
        self._missed |= unplaced
        self._unplaced |= unplaced
        self._work()

    def lost(self, subscriber: _Subscriber) -> None:
        self._drop(subscriber)
        self._look_again()
        self.release(subscriber.channels)


class _Subscriber:
    """One connection and its channels. Its commands are answered in order, with announcements between the answers."""

    def __init__(self, home: Wakeups, endpoint: Endpoint, connection: AbstractConnection, ping_s: float) -> None:
        self.endpoint = endpoint
        self.channels: set[str] = set()
        self.confirmed: set[str] = set()
        self._home = home
        self._connection = connection
        self._ping_s = ping_s
        self._asked: deque[tuple[bytes, str]] = deque()  # commands without an answer: ssubscribe, sunsubscribe
        self._pinged_at_s: float | None = None  # when a ping left that has no answer
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._ping_at_s = self._loop.time() + ping_s
        self._timer = self._loop.call_later(ping_s, self._tick)
        writer = connection._writer
        if writer is None:
            self._loop.call_soon(self._end)
        else:
            writer.transport.set_protocol(Replies(self._answered, lambda _: self._end()))

    def subscribe(self, channels: Sequence[str]) -> None:
        self.channels.update(channels)
        self._ask("SSUBSCRIBE", channels)

    def unsubscribe(self, channels: Sequence[str]) -> None:
        self.channels.difference_update(channels)
        self.confirmed.difference_update(channels)
        self._ask("SUNSUBSCRIBE", channels)

    def _ask(self, verb: str, channels: Sequence[str]) -> None:
        """One command per channel, because a command is for one slot, but all in one write."""
        self._asked += [(verb.lower().encode(), channel) for channel in channels]
        if channels:
            self._write(b"".join(command((verb, channel)) for channel in channels))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._timer.cancel()
            closing = self._loop.create_task(self._connection.disconnect(nowait=True))
            closing.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _write(self, packed: bytes) -> None:
        writer = self._connection._writer
        try:
            if writer is None or self._closed:
                raise ConnectionResetError("it is closed")
            writer.write(packed)
        except (OSError, RuntimeError):  # uvloop raises RuntimeError for a closed transport
            self._loop.call_soon(self._end)

    def _answered(self, reply: Any) -> None:
        self._pinged_at_s = None
        if isinstance(reply, Exception):
            kind, channel = self._asked.popleft()
            if isinstance(reply, MovedError):
                self._home.redirected(self.endpoint, reply)
            if kind == b"ssubscribe":
                self._left(channel)
            return
        if not isinstance(reply, list) or len(reply) < 3:
            return  # a pong
        kind, channel = reply[0], reply[1].decode()
        if kind == b"smessage":
            self._home.announced(channel, reply[2])
            return
        if self._asked and self._asked[0] == (kind, channel):
            self._asked.popleft()
            if kind == b"ssubscribe" and channel in self.channels:
                self.confirmed.add(channel)
                self._home.confirmed(channel)
        elif kind == b"sunsubscribe":
            self._left(channel)  # the slot has moved to another node

    def _left(self, channel: str) -> None:
        if channel in self.channels:
            self.channels.discard(channel)
            self.confirmed.discard(channel)
            self._home.suspected()
            self._home.release([channel])

    def _tick(self) -> None:
        now_s = self._loop.time()
        if self._pinged_at_s is None and now_s < self._ping_at_s:
            wait_s = self._ping_at_s - now_s
        elif self._pinged_at_s is None:
            self._pinged_at_s, self._ping_at_s = now_s, now_s + self._ping_s
            self._write(command(("PING",)))
            wait_s = SUSPECT_S
        elif now_s - self._pinged_at_s >= SILENCE_S:
            self._end()
            return
        else:
            self._home.suspected()
            wait_s = SUSPECT_AGAIN_S
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _end(self) -> None:
        if not self._closed:
            self._home.lost(self)
