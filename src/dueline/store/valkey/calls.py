"""Script calls on the store, with all retries in one place.

If a script is missing, the call is repeated with its source. If the connection is lost, it is reopened and the call
repeated with the same nonce, which the store recognizes and answers from memory. A store that is loading, fails over or
moves slots is waited for. A call that still fails after `patience_s` raises StoreDown (certainly not done) or
UnknownOutcome (its bytes were sent; then the last try ends with the patience). A node that refuses connections for
longer than a restart takes counts as down; then each call is tried only once.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import NoScriptError, OutOfMemoryError, ResponseError

from ...engine.errors import ClockStep, DuelineError, Loading, StoreDown, StoreFull, StoreReplaced, UnknownOutcome
from ...engine.guards import Guard
from ...engine.job import Partition
from ...engine.outcomes import OutcomeHook
from ...engine.store import Events, StalePolicy
from . import codec, directory, event_stream, tokens, workers
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
from .link import Link, LinkLost, NotNow, WrongKind, slot_of
from .scripts import OPERATIONS, Patch, load_scripts

REFUSED_PATIENCE_S = 0.8  # after a crash the embedded store accepts connections again within 0.2 s
CLOCK_JUMPED = "the store's clock jumped; nothing is done until the time is confirmed"
SENDS = frozenset({"send", "append"})
_pack_expected = struct.Struct(">ddd").pack
_unpack_reply = struct.Struct(">BBQQI").unpack_from
_REPLY_BYTES = 22
_LETTER = {name: chr(97 + place) for place, name in enumerate(OPERATIONS)}


Reply = tuple[int, int, int, int, bytes, bytes]  # status, now, note, extra, numbers, blob


def expectation(clock: tuple[int, int], carried: Carried) -> bytes:
    """ARGV[2] of a script (lua/lib/time.lua)."""
    return _pack_expected(*clock, carried[0]) + carried[1]


def read_reply(reply: bytes) -> Reply:
    """The reply of a script on a partition (lua/lib/reply.lua)."""
    status, extra, now_ms, note_ms, size = _unpack_reply(reply)
    blob_at = _REPLY_BYTES + size
    return status, now_ms, note_ms, extra, reply[_REPLY_BYTES:blob_at], reply[blob_at:]


class WrongStore(Exception):
    """The store holds data that this version must not touch."""


class OtherData(Exception):
    """A send was refused, because the partition does not have the data that this process knows: the epoch that it has
    (empty: none), its last send number, and the higher one that it is known to have had (0: none)."""

    def __init__(self, epoch: str, number: int, had: int) -> None:
        super().__init__(epoch, number, had)
        self.epoch = epoch
        self.number = number
        self.had = had


class Calls:
    """`test_clock`: the time to pass to every script (tests). `repeat_every`: repeat each n-th change (tests)."""

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
        self.link = link
        self.clock = store_clock or StoreClock()
        self.events: Events | None = None
        self.hook = OutcomeHook()
        self.repeat_every = 0
        self.reconnects = 0
        self.errors: dict[str, int] = {}  # calls that failed for good, by code
        self.unlisted: dict[
            tuple[str, str], set[Partition]
        ] = {}  # partitions that wait for their topic to be registered
        self._prefix = prefix
        self._test_clock = test_clock
        self._patience_s = patience_s
        self._on_call = on_call
        self._scripts = load_scripts(lua_patch)
        self._process = os.urandom(6).hex()
        self._nonce = int.from_bytes(os.urandom(4), "big") << 24
        self.epochs = Epochs(accept_command)
        self._brought_at: dict[str, float] = {}  # when the source of a script was last sent along

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

    async def _healed(self, attempt: Callable[[bool], Awaitable[Any]], name: str) -> Any:
        """Repeats `attempt(with_source)` until it succeeds. Decides here alone what can be retried."""
        started = time.monotonic()
        deadline = started + self._patience_s
        with_source = written = loading = False
        message, pause = "", 0.01
        while True:
            refused_s: float | None = None
            tried_at = time.monotonic()
            try:
                if written:
                    async with asyncio.timeout(deadline - tried_at):
                        reply = await attempt(with_source)
                else:
                    reply = await attempt(with_source)
                if self._on_call is not None:
                    self._on_call(name, time.monotonic() - started)
                return reply
            except NoScriptError:
                # Of many calls that meet a node without this script, the first one brings it along. The others were
                # under way by then; they follow it on the same connection.
                with_source = tried_at >= self._brought_at.get(name, 0.0)
                if with_source:
                    self._brought_at[name] = time.monotonic()
                continue
            except (LinkLost, NotNow) as error:
                self.reconnects += isinstance(error, LinkLost)
                written = written or error.written
                if written and self.hook.outcomes is not None:  # a repeated call tells less than the first
                    self.hook.outcomes.lost()
                loading, message, refused_s = error.loading, str(error), error.refused_s
            except TimeoutError:
                pass  # the patience is over, and the outcome was unknown before this try
            except WrongKind as error:
                raise self._failed(StoreDown(str(error))) from None
            except ResponseError as error:
                message = str(error)
                if written:  # refused now, but an earlier try may have taken effect
                    raise self._failed(UnknownOutcome()) from error
                if isinstance(error, OutOfMemoryError) or message.startswith(("OOM", "MISCONF")):
                    raise self._failed(StoreFull(f"the store refuses writes: {message}")) from None
                raise
            given_up = refused_s is not None and refused_s + pause > REFUSED_PATIENCE_S
            rest = max(0.0, tried_at + pause - time.monotonic())  # a slow try needs no pause after it
            if time.monotonic() + rest >= deadline or (given_up and not written):
                if self.link.guards is not None:
                    self.link.guards.failed()
                tried = f"the store did not answer for {time.monotonic() - started:.1f} s"
                if written:
                    unknown = f"{tried} ({message}): the call may have been done. Retry with the same id."
                    raise self._failed(UnknownOutcome(unknown))
                raise self._failed(Loading() if loading else StoreDown(f"{tried}: {message}"))
            await self.link.rest(rest)
            pause = min(pause * 2, 0.5)

    def _failed(self, error: DuelineError) -> DuelineError:
        self.errors[error.code] = self.errors.get(error.code, 0) + 1
        return error

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
        status, now_ms, note_ms, said, packed, answer = await self.once(
            name, named, slot, numbers, blob, extra, carried
        )
        if status == 2:
            raise StalePolicy(note_ms)
        if status == 3:
            raise OtherData(packed.decode(), note_ms, int(answer or 0))
        if self.events is not None:
            if note_ms:
                self.events.noted(partition, note_ms)
            if said & 1:
                self.found_unlisted(partition)
        return now_ms, said, codec.unpack_numbers(packed), answer

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

    @property
    def _change(self) -> Callable[..., Awaitable[Any]]:
        """How a changing call is sent."""
        return self.link.call if self.link.replication is None else self.link.change

    def _caller(self, name: str, slot: str) -> str:
        """The name under which the store remembers the last call."""
        return f"{self._process}{_LETTER[name]}{slot}"

    async def once(
        self,
        name: str,
        keys: tuple[str, ...],
        slot: str,
        numbers: bytes,
        blob: bytes,
        extra: tuple[str, ...] = (),
        carried: Carried = (0, b""),
    ) -> Reply:
        """The reply of a changing script that takes effect once, however often it is sent. Raises ClockStep."""
        guards = self.link.guards
        if guards is not None and guards.closed and name in SENDS:
            self._refuse(keys[0])
        script = self._scripts[name]
        self._nonce += 1
        nonce = self._nonce.to_bytes(8, "big")
        caller = self._caller(name, slot)
        asked_ms = 0.0
        change, test_clock = self._change, self._test_clock

        async def attempt(with_source: bool) -> Any:
            nonlocal asked_ms
            asked_ms = self.clock.asked()
            head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
            now, expected = ("", self.clock.expectation()) if test_clock is None else (str(test_clock()), (0, 0))
            args = (now, expectation(expected, carried), caller, nonce, numbers, blob, *extra)
            return await change(keys[0], *head, len(keys), *keys, *args)

        until_s = time.monotonic() + self._patience_s
        while True:
            try:
                reply = await self._healed(attempt, name)
            except asyncio.CancelledError:
                if self.hook.outcomes is not None:
                    self.hook.outcomes.lost()
                raise
            if self.repeat_every and self._nonce % self.repeat_every == 0:
                reply = await self._healed(attempt, name)
            answer = read_reply(reply)
            in_time = test_clock is not None or self.clock.observe(answer[1], asked_ms)
            if answer[0] != 1:
                return answer
            if not in_time:
                self.link.trip(Guard.CLOCK_STEP, keys[0], CLOCK_JUMPED)
                raise ClockStep()
            # The call was only slow to arrive. Repeat it with the same nonce, so that it cannot take effect twice.
            if time.monotonic() > until_s:  # the clock guard refused every try, so nothing was done
                raise StoreDown("the store does not answer in time; nothing was sent to it")

    def _refuse(self, key: str) -> None:
        """Raise StoreDown if the shard of a key must not get sends, although it would accept them."""
        guards, owner = self.link.guards, self.link.owner_now(key)
        why = None if guards is None else guards.refusal(str(owner or ""))
        if why is not None:
            raise StoreDown(why)

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

    async def epoch_call(self, what: int, numbers: list[int], *texts: str | bytes) -> tuple[int, str]:
        """One call of epochs.lua: (state, epoch). `texts`: those after the data version."""
        words = [one.encode() if isinstance(one, str) else one for one in (self.epochs.store, DATA_VERSION, *texts)]
        packed = codec.pack_numbers([*map(len, words), *numbers])
        found, epoch = await self._shared("epochs", epoch_keys(self._prefix), "", what, packed, b"".join(words), False)
        return codec.unpack_numbers(found)[0], epoch.decode()

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
