"""Makes sends reach the right data: opens partitions and retires them. `epochs` has the model.

A partition is opened in three steps, and a process may die after each:

    directory   epoch handed out, not confirmed     the next process hands out another one
    partition   has the epoch and the first send    the next process finds and confirms the epoch
    directory   confirmed, topic listed             from now on, an empty partition has lost its data

No send is answered before the directory knows the partition. Retiring goes the other way: the directory notes that
the partition is being closed, the partition is deleted if it still has that epoch, the entry is removed. A process that
opens it in the meantime gives it a new epoch. All this happens once per partition. Usually a process finds the
partition open, learns its epoch from the refusal of its first send, and sends again. If the directory did not know the
topic a moment ago, the first send opens the partition (`_send_first`). Otherwise the partition gets its epoch before
that send (`_opened`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from ...engine.completion import Done, leave
from ...engine.errors import DuelineError, StoreDown, StoreReplaced, UnknownOutcome
from ...engine.job import Partition
from ...engine.store import Code
from . import codec
from .calls import Calls, OtherData
from .codec import ALL_CREATED
from .epoch_calls import CLOSED, CLOSING, CONFIRM, NOT_CLOSED, OPEN, EpochCalls
from .epochs import Carried, KnownData, lost_sends, number_of, opening
from .keys import partition_name

REPLACED, PENDING, OPENED, UNKNOWN, FOREIGN = range(5)  # states of lua/epochs.lua
TRIES = 10
WIDTH = 4  # numbers per job in a reply of send.lua
STORED = (Code.CREATED, Code.REPLACED, Code.APPENDED)  # a reply with another code may have no send number
NUMBERED = {"edit": (0, 3), "dead": (1, 4)}  # where the code is among how many numbers per job; the last is the version
CHECKED = 100  # lost partitions that one health check looks at again

Ask = Callable[[int, str], Awaitable[tuple[bool, str]]]


class Openings:
    """All calls that need to know a partition's epoch."""

    def __init__(self, calls: Calls, pop_new: Callable[[str, str], bool] = lambda namespace, topic: False) -> None:
        """`pop_new`: whether the directory did not know a topic when it was read. Returns true only the first time."""
        self._calls = calls
        self._pop_new = pop_new
        self._epochs = calls.epochs
        self._locks: WeakValueDictionary[Partition, asyncio.Lock] = WeakValueDictionary()
        self._directory = EpochCalls(calls.epoch_call, lambda: self._epochs.store)

    async def send(
        self,
        name: str,
        partition: Partition,
        numbers: bytes,
        blob: bytes,
        slot: str,
        width: int,
        other: Partition | None = None,
    ) -> tuple[list[int], bytes]:
        """A call of send.lua or append.lua, whose replies have `width` numbers per job. Raises StoreReplaced."""
        for _ in range(TRIES):
            if None in self._epochs.losses:
                await self._calls.check()
            known = self._epochs.known(partition)
            call = partial(self._calls.change, name, partition, numbers, blob, slot, other)
            if known is None and self._pop_new(partition.namespace, partition.topic):
                reply = await self._send_first(partition, call)
                if reply is None:
                    continue
                now_ms, _, n, answer = reply
                self._saw(partition, width, now_ms, n)
                return n, answer
            carried = self._epochs.carried(known)
            try:
                now_ms, _, n, answer = await call(carried)
            except OtherData as found:
                await self._learn_once(partition, known, found)
                continue
            self._saw(partition, width, now_ms, n)
            return n, answer
        raise StoreDown("the partition keeps being opened and retired; nothing was done")

    async def _send_first(
        self, partition: Partition, call: Callable[[Carried], Awaitable[tuple[int, int, list[int], bytes]]]
    ) -> tuple[int, int, list[int], bytes] | None:
        """Make the call that opens an unused partition. None: it is not unused, and nothing was sent."""
        async with self._locks.setdefault(partition, asyncio.Lock()):
            if self._epochs.known(partition) is not None:
                return None
            name = partition_name(partition)
            try:
                state, epoch, listed = await self._directory.ask(OPEN, [-1], name, "", "")
            except UnknownOutcome as error:
                raise StoreDown(error.message) from None  # nothing was sent
            if state != PENDING:
                return None
            try:
                reply = await call(opening(epoch, listed))
            except OtherData:
                return None
            try:
                await self._confirm(partition, name, epoch, listed)
                for _ in range(TRIES):
                    if self._epochs.known(partition) is not None:
                        return reply
                    # It was retired before the send came. The send gave it an epoch that the directory has dropped.
                    await self._learn(partition, None, await self._calls.stamp(partition))
            except DuelineError as error:
                raise UnknownOutcome() from error
            raise UnknownOutcome()

    async def _confirm(self, partition: Partition, name: bytes, epoch: str, listed: bool) -> None:
        """Let the directory know the partition, unless it is being retired."""
        state, _, _ = await self._directory.ask(CONFIRM, [int(listed)], name, epoch)
        if state == OPENED:
            self._epochs.adopt(partition, epoch, self._calls.now_ms())

    def post(self, partition: Partition, numbers: bytes, blob: bytes, slot: str, done: Done) -> None:
        """A call of send.lua without a coroutine, unless the partition's data must be found out first."""
        known = self._epochs.known(partition)
        if known is None or None in self._epochs.losses:
            leave(self.send("send", partition, numbers, blob, slot, WIDTH), done)
            return

        def answered(reply: Any) -> None:
            if isinstance(reply, OtherData):
                leave(self._send_again(partition, known, reply, numbers, blob, slot), done)
            elif isinstance(reply, BaseException):
                done(reply)
            else:
                now_ms, _, n, answer = reply
                self._saw(partition, WIDTH, now_ms, n)
                done((n, answer))

        self._calls.post_change("send", partition, numbers, blob, slot, answered, self._epochs.carried(known))

    async def _send_again(
        self, partition: Partition, known: KnownData | None, found: OtherData, numbers: bytes, blob: bytes, slot: str
    ) -> tuple[list[int], bytes]:
        await self._learn_once(partition, known, found)
        return await self.send("send", partition, numbers, blob, slot, WIDTH)

    async def _learn_once(self, partition: Partition, known: KnownData | None, found: OtherData) -> None:
        async with self._locks.setdefault(partition, asyncio.Lock()):
            if self._epochs.known(partition) is known:  # no other call has found out meanwhile
                await self._learn(partition, known, found)

    def _saw(self, partition: Partition, width: int, now_ms: int, n: list[int]) -> None:
        """Note the send numbers of a reply."""
        if len(n) == ALL_CREATED:
            self._epochs.saw(partition, n[2], now_ms)
        else:
            seen = [number for code, number in zip(n[::width], n[3::width], strict=True) if code in STORED]
            self._epochs.saw(partition, max(seen, default=0), now_ms)

    async def change(
        self, name: str, partition: Partition, numbers: bytes, blob: bytes, slot: str = ""
    ) -> tuple[list[int], bytes]:
        """A call of edit.lua or dead.lua, which take send numbers. They are not refused, but leave a mark where sends
        are missing, so that the number that they take does not hide it from the next send."""
        known = self._epochs.known(partition)
        carried = self._epochs.carried(known)
        now_ms, _, n, answer = await self._calls.change(name, partition, numbers, blob, slot, carried=carried)
        code, width = NUMBERED[name]
        seen = [number for one, number in zip(n[code::width], n[width - 1 :: width], strict=True) if one == Code.OK]
        self._epochs.saw(partition, max(seen, default=0), now_ms)
        return n, answer

    async def check(self) -> None:
        """A health check: the store (`Calls.check`), and whether lost data is back or its loss accepted. Raises
        WrongStore or StoreReplaced."""
        await self._calls.check()
        for partition in [one for one in self._epochs.losses if one is not None][:CHECKED]:
            known = self._epochs.known(partition)
            found = await self._calls.stamp(partition)
            is_back = known is not None and found.epoch == known.epoch and found.number >= known.highest
            try:
                if not is_back:
                    await self._learn(partition, known, found)
                self._epochs.healed(partition)
            except StoreReplaced:
                pass  # it is still lost, which `losses` shows

    async def _learn(self, partition: Partition, known: KnownData | None, found: OtherData) -> None:
        """Find out which epoch the partition has, and open it if it is unused. Raises StoreReplaced."""
        try:
            await self._ask(partition, known, found)
        except UnknownOutcome as error:
            raise StoreDown(error.message) from None  # the partition may have been opened; nothing was sent

    async def _ask(self, partition: Partition, known: KnownData | None, found: OtherData) -> None:
        highest = -1 if known is None else known.highest
        name, epoch = partition_name(partition), ""
        while True:
            if found.epoch.startswith("!"):
                raise self._epochs.lost(
                    partition,
                    lost_sends(found.had if highest <= found.number else max(found.had, highest), found.number),
                )
            before = epoch
            texts = (name, found.epoch, "" if known is None else known.epoch)
            state, epoch, listed = await self._directory.ask(OPEN, [highest], *texts)
            if state != OPENED or epoch in (found.epoch, before):
                break
            found = await self._calls.stamp(partition)  # another process may have opened it in between
        now_ms = self._calls.now_ms()
        if state == REPLACED:
            await self._calls.check()
        elif state == FOREIGN:
            raise self._epochs.lost(partition, "its data is that of another store")
        elif state == OPENED and epoch != found.epoch:
            raise self._epochs.lost(partition, _gone(known) if not found.epoch else "it has other data")
        elif known is not None and found.epoch and number_of(found.epoch) < number_of(known.epoch):
            raise self._epochs.lost(partition, "it has older data")
        elif state == OPENED:
            self._epochs.adopt(partition, epoch, now_ms)
        elif state == UNKNOWN and known is not None:
            if not self._epochs.is_retired(known, int(epoch or 0), now_ms):
                raise self._epochs.lost(partition, _gone(known))
            self._epochs.forget(partition)
        elif await self._opened(partition, epoch, found.epoch, listed):
            await self._confirm(partition, name, epoch, listed)

    async def _opened(self, partition: Partition, epoch: str, before: str, listed: bool) -> bool:
        """Give the partition this epoch, if it has none or has `before`. `listed`: the directory has its topic."""
        words = (codec.pack_numbers([5, len(epoch), int(listed)]), (epoch + before).encode())
        _, _, n, _ = await self._calls.change("control", partition, *words)
        return bool(n[0])

    async def retire(self, partition: Partition, control: Ask, topic_too: bool) -> bool:
        """Delete a partition, if that is allowed. `control(only_ask, epoch)` asks whether it can be deleted and
        which epoch it has, or deletes it if it has this one. `topic_too`: its topic is being deleted. If the data is
        lost, this raises StoreReplaced; without `topic_too` the partition is left alone."""
        empty, epoch = await control(1, "")
        if not empty:
            return False
        name = partition_name(partition)
        state, entry, _ = await self._directory.ask(CLOSING, [], name)
        if state == REPLACED:
            return await self._kept(self._calls.check(), topic_too)
        if state == OPENED and entry != epoch:
            await self._directory.ask(NOT_CLOSED, [], name, entry)
            known, found = self._epochs.known(partition), await self._calls.stamp(partition)
            return await self._kept(self._learn(partition, known, found), topic_too)
        done, _ = await control(0, epoch)
        if entry:
            await self._directory.ask(CLOSED if done else NOT_CLOSED, [], name, entry)
        if done:
            self._epochs.forget(partition)
        return done

    async def _kept(self, check: Awaitable[None], topic_too: bool) -> bool:
        """False: the partition is not retired, because its data is lost, or was not there a moment ago."""
        try:
            await check
        except StoreReplaced:
            if topic_too:
                raise
        return False


def _gone(known: KnownData | None) -> str:
    return "it is gone" if known is None else f"it had send number {known.highest:,} and is gone"
