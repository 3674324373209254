"""Script calls on the store, with all retries in one place.

If a script is missing, the call is repeated with its source. If the connection is lost, it is reopened and the call
repeated with the same nonce, which the store recognizes and answers from memory. A store that is loading, fails over or
moves slots is waited for. A call that still fails after `patience_s` raises StoreDown (certainly not done) or
UnknownOutcome (its bytes were sent; then the last try ends with the patience). A node that refuses connections for
longer than a restart takes counts as down; then each call is tried only once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...engine.completion import Done
from ...engine.errors import StoreReplaced
from ...engine.guards import Guard
from ...engine.job import Partition
from ...engine.store import StalePolicy
from ...engine.store_events import Events
from . import codec, directory, event_stream, tokens, workers
from .attempts import CLOCK_JUMPED, Attempts, Reply, expectation, read_reply
from .clock import StoreClock
from .epochs import Carried, Epochs
from .keys import (
    DATA_VERSION,
    LETTERS,
    changes_channel,
    directory_keys,
    entries_channel,
    epoch_copies,
    epoch_keys,
    event_keys,
    interest_channel,
    key_of,
    meta_key,
    partition_keys,
    token_keys,
    tokens_channel,
    version_fault,
    worker_keys,
)
from .link import Link, slot_of
from .scripts import Patch

__all__ = ["Calls", "OtherData", "Reply", "WrongStore", "expectation", "read_reply"]


class WrongStore(Exception):
    """The store holds data that this version must not touch."""


class OtherData(Exception):
    """A send was refused, because the partition does not have the data that this process knows. `epoch`: that of the
    partition (empty: none). `number`: its last send number. `had`: a higher number that it is known to have had (0:
    none)."""

    def __init__(self, epoch: str, number: int, had: int) -> None:
        super().__init__(epoch, number, had)
        self.epoch = epoch
        self.number = number
        self.had = had


class Calls(Attempts):
    """All calls, by what they are about. `attempts` has the retries, and the parameters for tests."""

    def __init__(
        self,
        link: Link,
        prefix: str,
        test_clock: Callable[[], int] | None,
        patience_s: float,
        lua_patch: Patch | None,
        on_call: Callable[[str, float], None] | None,
        store_clock: StoreClock | None = None,
        accept_command: str = "dueline store accept",
    ) -> None:
        super().__init__(link, test_clock, patience_s, lua_patch, on_call, store_clock)
        self.events: Events | None = None
        self.unlisted: dict[
            tuple[str, str], set[Partition]
        ] = {}  # partitions that wait for their topic to be registered
        self._prefix = prefix
        self.epochs = Epochs(accept_command)

    def now_ms(self) -> int:
        return self._test_clock() if self._test_clock else self.clock.now_ms()

    async def start(self) -> None:
        """Connects, checks the data version and begins a new store; raises StoreDown, Loading, WrongStore or
        StoreReplaced."""
        await self.link.start()
        key = meta_key(self._prefix)
        fields = await self._meta()
        copies = await self._epoch_copies() if self.link.permanent_keys else {}
        if b"epoch" not in fields and any(copies.values()):
            raise self.epochs.lost(None, "its directory was emptied")
        for name, value in (("version", DATA_VERSION), ("epoch", os.urandom(8).hex())):
            if name.encode() not in fields:  # a full store refuses every write
                await self.plain(key, "HSETNX", key, name, value)
        await self.check()
        for copy, value in copies.items():
            if value is None:
                await self.plain(copy, "SET", copy, self.epochs.store, "NX")
            elif value.decode() != self.epochs.store:
                raise self.epochs.lost(None, "its directory and its shards belong to different stores")

    async def check(self) -> None:
        """A health check: the store's clock, its data version, and that it is still the same store. Raises WrongStore
        or StoreReplaced."""
        key = meta_key(self._prefix)
        asked_ms = self.clock.asked()
        reply = await self.plain(key, "TIME")
        now_ms = int(reply[0]) * 1000 + int(reply[1]) // 1000
        if self._test_clock is None and not self.clock.observe(now_ms, asked_ms):
            self.link.trip(Guard.CLOCK_STEP, key, CLOCK_JUMPED)
        fields = await self._meta()
        fault = version_fault(fields)
        if fault is not None:
            raise WrongStore(f"{fault}: use the matching version")
        epoch, accepted_ms = fields.get(b"epoch", b"").decode(), int(fields.get(b"accepted", 0))
        try:
            self.epochs.judge_store(epoch, b"lost" in fields, accepted_ms, now_ms)
        except StoreReplaced:
            self.link.trip(Guard.STORE_REPLACED, key, self.epochs.losses[None].what)
            raise

    async def _epoch_copies(self) -> dict[str, bytes | None]:
        return {key: await self.plain(key, "GET", key) for key in epoch_copies(self._prefix)}

    async def _meta(self) -> dict[bytes, bytes]:
        key = meta_key(self._prefix)
        found = await self.plain(key, "HGETALL", key)
        return dict(zip(found[::2], found[1::2], strict=True))

    async def plain(self, key: str, *command: Any) -> Any:
        """One command on a key, with the same retries as a script call."""
        return await self._healed(lambda _: self.link.call(key, *command), "plain")

    async def change(
        self,
        name: str,
        partition: Partition,
        numbers: bytes,
        blob: bytes = b"",
        slot: str = "",
        other: Partition | None = None,
        carried: Carried = (0, b""),
    ) -> tuple[int, int, list[int], bytes]:
        """One changing script call: (now_ms, extra, numbers, blob). Sends events to the engine.
        `slot` distinguishes concurrent calls of one operation. `other`: another topic's partition with the same number,
        in a namespace with `namespace_ids`. `carried`: the data that the partition must have (epochs.Epochs); raises
        OtherData if it has other data."""
        keys = partition_keys(self._prefix, partition)
        named: tuple[str, ...] = keys.keys
        extra = self._extra(keys.channel, partition)
        if other is not None:
            second = partition_keys(self._prefix, other)
            named += tuple(key for key, letter in zip(second.keys, LETTERS, strict=True) if letter not in "jr")
            extra += (other.topic, second.channel)
        return self._changed(partition, await self.once(name, named, slot, numbers, blob, extra, carried))

    def post_change(
        self,
        name: str,
        partition: Partition,
        numbers: bytes,
        blob: bytes,
        slot: str,
        done: Done,
        carried: Carried = (0, b""),
    ) -> None:
        """`change` without a coroutine."""
        keys = partition_keys(self._prefix, partition)
        extra = self._extra(keys.channel, partition)
        on_reply = partial(self._posted, partition, done)
        self.post(name, keys.keys, slot, numbers, blob, extra, carried, on_reply)

    def _posted(self, partition: Partition, done: Done, reply: Any) -> None:
        if not isinstance(reply, BaseException):
            try:
                reply = self._changed(partition, reply)
            except (StalePolicy, OtherData) as error:
                reply = error
        done(reply)

    def _changed(self, partition: Partition, reply: Reply) -> tuple[int, int, list[int], bytes]:
        """(now_ms, extra, numbers, blob) of a reply. Raises StalePolicy or OtherData."""
        status, now_ms, note_ms, extra, packed, answer = reply
        if status == 2:
            raise StalePolicy(note_ms)
        if status == 3:
            raise OtherData(packed.decode(), note_ms, int(answer or 0))
        if self.events is not None:
            if note_ms:
                self.events.noted(partition, note_ms)
            if extra & 1:
                self.found_unlisted(partition)
        return now_ms, extra, codec.unpack_numbers(packed), answer

    def found_unlisted(self, partition: Partition) -> None:
        """Note the store's report that a partition's topic is not registered."""
        self.unlisted.setdefault((partition.namespace, partition.topic), set()).add(partition)
        if self.events is not None:
            self.events.unlisted(partition)

    def single_send_words(
        self, partition: Partition, policy_version: int, with_source: bool
    ) -> tuple[tuple[Any, ...], str, tuple[str, ...]]:
        """The arguments of a send.lua call outside this loop: those before the times, the caller, and those after the
        blob."""
        keys = partition_keys(self._prefix, partition)
        script = self._scripts["send"]
        head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
        caller = self._caller("send", f"{policy_version}t")  # distinct from the calls of this loop
        return (*head, len(keys.keys), *keys.keys), caller, self._extra(keys.channel, partition)

    def _extra(self, channel: str, partition: Partition) -> tuple[str, ...]:
        """The arguments after the blob."""
        permanent = "1" if self.link.permanent_keys else ""
        named = (partition.topic,) if partition.namespace_ids else ()
        return (channel, permanent, self._process, *named)

    async def look(
        self, name: str, partition: Partition, numbers: bytes, blob: bytes = b""
    ) -> tuple[int, list[int], bytes]:
        """One reading script call on a partition: (now_ms, numbers, blob)."""
        topic = ("", "", "", partition.topic) if partition.namespace_ids else ()
        return await self._look(name, partition_keys(self._prefix, partition).keys, numbers, blob, topic)

    def slot(self, partition: Partition) -> int:
        """Partitions of one slot can share a call. Only a Cluster has several."""
        return slot_of(key_of(self._prefix, partition, "m")) if self.link.permanent_keys else 0

    async def look_over(
        self, name: str, partitions: Sequence[Partition], letters: str, numbers: bytes
    ) -> tuple[int, list[int], bytes]:
        """One reading script call on some keys of many partitions, which must be in one slot on a Cluster."""
        keys = tuple(key_of(self._prefix, partition, letter) for partition in partitions for letter in letters)
        return await self._look(name, keys, numbers, b"", ())

    async def _look(
        self, name: str, keys: tuple[str, ...], numbers: bytes, blob: bytes, more: tuple[str, ...]
    ) -> tuple[int, list[int], bytes]:
        script = self._scripts[name]

        async def attempt(with_source: bool) -> Any:
            head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
            now = "" if self._test_clock is None else str(self._test_clock())
            return await self.link.call(keys[0], *head, len(keys), *keys, now, "", "", "", numbers, blob, *more)

        _, now_ms, _, _, packed, answer = read_reply(await self._healed(attempt, name))
        return now_ms, codec.unpack_numbers(packed), answer

    async def directory(self, what: int, numbers: bytes, blob: bytes) -> tuple[bytes, bytes]:
        """One call of directory.lua: (numbers, blob)."""
        names = ("directory", directory_keys(self._prefix), changes_channel(self._prefix))
        return await self._shared(*names, what, numbers, blob, what in directory.READING)

    async def tokens(self, what: int, numbers: bytes, blob: bytes) -> tuple[bytes, bytes]:
        """One call of tokens.lua: (numbers, blob)."""
        names = ("tokens", token_keys(self._prefix), tokens_channel(self._prefix))
        if self.repeat_every:
            await self._shared(*names, what, numbers, blob, what in tokens.READING)
        return await self._shared(*names, what, numbers, blob, what in tokens.READING)

    async def event_call(self, what: int, numbers: bytes, blob: bytes) -> tuple[bytes, bytes]:
        """One call of events.lua: (numbers, blob)."""
        channel = interest_channel if what == event_stream.LISTEN else entries_channel
        names = ("events", event_keys(self._prefix), channel(self._prefix))
        if self.repeat_every:
            await self._shared(*names, what, numbers, blob, what in event_stream.READING)
        return await self._shared(*names, what, numbers, blob, what in event_stream.READING)

    async def worker_call(self, namespace: str, what: int, numbers: bytes, blob: bytes) -> tuple[bytes, bytes]:
        """One call of workers.lua: (numbers, blob)."""
        keys = worker_keys(self._prefix, namespace)
        return await self._shared("workers", keys, "", what, numbers, blob, what in workers.READING)

    async def epoch_call(self, what: int, numbers: bytes, blob: bytes) -> tuple[bytes, bytes]:
        """One call of epochs.lua: (numbers, blob)."""
        return await self._shared("epochs", epoch_keys(self._prefix), "", what, numbers, blob, False)

    async def stamp(self, partition: Partition) -> OtherData:
        """The data that a partition has now."""
        key = partition_keys(self._prefix, partition).keys[0]
        epoch, number, had = await self.plain(key, "HMGET", key, "ep", "seq", "eh")
        return OtherData((epoch or b"").decode(), int(number or 0), int(had or 0))

    async def _shared(
        self, name: str, keys: tuple[str, ...], channel: str, what: int, numbers: bytes, blob: bytes, reading: bool
    ) -> tuple[bytes, bytes]:
        """One call of a script on data that belongs to no partition. It is safe to repeat by its own rules."""
        script, ends = self._scripts[name], ("1" if self.link.permanent_keys else "", channel)
        send = self.link.call if reading else self._change

        async def attempt(with_source: bool) -> Any:
            head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
            now = "" if self._test_clock is None else str(self._test_clock())
            return await send(keys[0], *head, len(keys), *keys, now, what, numbers, blob, *ends)

        reply = await self._healed(attempt, name)
        return reply[1], reply[2]
