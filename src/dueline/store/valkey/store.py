"""The store on Redis >= 7.0 / Valkey >= 7.2: each operation is one Lua script call on one line.

    Store method -> Batcher (one call in flight per operation and line) -> numbers + blob -> script -> results

Healing is in one place (`_healed`): a missing script is sent along, a lost connection is reopened and the call repeated
with the same nonce (the script answers a repeat from its memory), a loading store is waited for. What cannot be healed
in `patience_s` ends as StoreDown (certainly not done) or UnknownOutcome (its bytes had left).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import BusyLoadingError, NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

from ...engine.errors import ClockStep, Loading, StoreDown, StoreFull, UnknownOutcome
from ...engine.job import Job, Line, Reason, State
from ...engine.limits import LAST_MS, PULL_BYTES, Limits
from ...engine.store import (
    Cleaned,
    Code,
    Control,
    Done,
    Edit,
    Events,
    Extend,
    Page,
    Pull,
    Pulled,
    Purge,
    Query,
    Ref,
    Release,
    Revive,
    SendItem,
    SendResult,
    StalePolicy,
    Stats,
)
from . import codec
from .batching import Batcher
from .clock import StoreClock
from .directory import ValkeyDirectory
from .keys import DATA_VERSION, directory_keys, line_keys, meta_key
from .link import LinkLost, link_for
from .scripts import OPERATIONS, Patch, load_scripts
from .wakeups import Wakeups

_CODES = {int(code): code for code in Code}
_LETTER = {name: chr(97 + place) for place, name in enumerate(OPERATIONS)}


class WrongStore(Exception):
    """The store holds data that this version must not touch, or is not the one this process began with."""


class ValkeyStore:
    """`clock`: a test's own time, given to every script. `lua_patch` and `repeat_every` are for tests too."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "dueline",
        clock: Callable[[], int] | None = None,
        limits: Limits = Limits(),
        patience_s: float = 15.0,
        reply_timeout_s: float = 10.0,
        lua_patch: Patch | None = None,
        on_call: Callable[[str, float], None] | None = None,
    ) -> None:
        self.url = url
        self.prefix = prefix
        self.limits = limits
        self.clock = StoreClock()
        self.events: Events | None = None
        self.directory = ValkeyDirectory(self._directory, self._registered)
        self.repeat_every = 0
        self.on_call = on_call
        self.reconnects = 0
        self.epoch: str | None = None
        self._test_clock = clock
        self._patience_s = patience_s
        self._link = link_for(url, reply_timeout_s)
        self._scripts = load_scripts(lua_patch)
        self._process = os.urandom(6).hex()
        self._nonce = int.from_bytes(os.urandom(4), "big") << 24
        self._wakeups = Wakeups(self._link, self._woken)
        self._batchers: dict[tuple[str, Line], Batcher[Any, Any]] = {}
        self._locks: dict[tuple[str, Line], asyncio.Lock] = {}
        self._unlisted: dict[tuple[str, str], set[Line]] = {}

    # --- life ---

    async def start(self) -> None:
        """Connects and checks the data version; raises StoreDown, Loading or WrongStore."""
        await self._link.start()
        key = meta_key(self.prefix)
        await self._plain(key, "HSETNX", key, "version", DATA_VERSION)
        await self._plain(key, "HSETNX", key, "epoch", os.urandom(8).hex())
        await self.check()

    async def check(self) -> None:
        """One look at the store (health): its clock, its data version, and that it is still the same store."""
        key = meta_key(self.prefix)
        reply = await self._plain(key, "TIME")
        if self._test_clock is None:
            self.clock.observe(int(reply[0]) * 1000 + int(reply[1]) // 1000)
        found = await self._plain(key, "HGETALL", key)
        fields: dict[bytes, bytes] = (
            found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
        )
        version = fields.get(b"version", b"").decode()
        if fields and version != DATA_VERSION:
            raise WrongStore(
                f"the store holds data of version {version or '?'}, this program reads {DATA_VERSION}: "
                "use the matching version"
            )
        epoch = fields.get(b"epoch", b"").decode()
        if self.epoch is None:
            self.epoch = epoch
        elif epoch != self.epoch:
            raise WrongStore(
                "the store is not the one this server began with (emptied or replaced): restart the server to accept it"
            )

    async def stop(self) -> None:
        await self._wakeups.stop()
        await self._link.stop()

    def now_ms(self) -> int:
        return self._test_clock() if self._test_clock else self.clock.now_ms()

    async def watch(self, line: Line) -> None:
        try:
            await self._wakeups.watch(line, line_keys(self.prefix, line).channel)
        except LinkLost as lost:
            raise StoreDown(str(lost)) from None

    async def unwatch(self, line: Line) -> None:
        await self._wakeups.unwatch(line_keys(self.prefix, line).channel)

    def _woken(self, line: Line) -> None:
        if self.events is not None:
            self.events.woken(line)

    # --- calls ---

    async def _plain(self, key: str, *command: Any) -> Any:
        return await self._healed(lambda _: self._link.call(key, *command), "plain")

    async def _healed(self, attempt: Callable[[bool], Awaitable[Any]], name: str) -> Any:
        """Repeats `attempt(with_source)` until it answers. Only this place knows what can be healed."""
        started = time.monotonic()
        deadline = started + self._patience_s
        with_source = written = loading = False
        message, pause = "", 0.01
        while True:
            try:
                reply = await attempt(with_source)
                if self.on_call is not None:
                    self.on_call(name, time.monotonic() - started)
                return reply
            except NoScriptError:
                with_source = True
                continue
            except OutOfMemoryError:
                raise StoreFull() from None
            except (LinkLost, BusyLoadingError, ReadOnlyError) as error:
                self.reconnects += isinstance(error, LinkLost)
                written = written or (isinstance(error, LinkLost) and error.written)
                loading = isinstance(error, BusyLoadingError) or (isinstance(error, LinkLost) and error.loading)
                message = str(error)
            except ResponseError as error:
                message = str(error)
                if message.startswith(("OOM", "MISCONF")):
                    raise StoreFull(f"the store refuses writes: {message}") from None
                if not message.startswith(("TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS", "MASTERDOWN", "LOADING", "BUSY")):
                    raise
            if time.monotonic() + pause > deadline:
                if written:
                    raise UnknownOutcome()
                raise (Loading() if loading else StoreDown(f"the store does not answer: {message}"))
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def _call(
        self, name: str, line: Line, numbers: bytes, blob: bytes = b"", *extra: Any, variant: int = 0
    ) -> tuple[int, int, list[int], bytes]:
        """One changing script call: (now_ms, extra, numbers, blob). Events for the engine leave here.
        `variant` tells callers of one operation apart that may be in flight together."""
        script, keys = self._scripts[name], line_keys(self.prefix, line)
        self._nonce += 1
        nonce = self._nonce.to_bytes(8, "big")
        permanent = "1" if self._link.permanent_keys else ""
        caller = f"{self._process}{_LETTER[name]}{variant or ''}"

        async def attempt(with_source: bool) -> Any:
            head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
            now, expected = (
                ("", self.clock.expectation()) if self._test_clock is None else (str(self._test_clock()), "")
            )
            args = (now, expected, caller, nonce, numbers, blob, keys.channel, permanent, *extra)
            return await self._link.call(keys.keys[0], *head, 9, *keys.keys, *args)

        reply = await self._healed(attempt, name)
        if self.repeat_every and self._nonce % self.repeat_every == 0:
            reply = await self._healed(attempt, name)
        status, now_ms, note_ms, said, packed, answer = reply
        if self._test_clock is None:
            in_time = self.clock.observe(now_ms)
            if status == 1:
                if not in_time:
                    raise ClockStep()
                return await self._call(name, line, numbers, blob, *extra, variant=variant)
        if status == 2:
            if self.events is not None:
                self.events.policy_changed(line, said)
            raise StalePolicy(said)
        if self.events is not None:
            if note_ms:
                self.events.noted(line, note_ms)
            if said & 1:
                self._unlisted.setdefault((line.namespace, line.topic), set()).add(line)
                self.events.unlisted(line)
        return now_ms, said, codec.unpack_numbers(packed), answer

    async def _look(self, name: str, line: Line, numbers: bytes, blob: bytes = b"") -> tuple[int, list[int], bytes]:
        """One reading script call: (now_ms, numbers, blob)."""
        script, keys = self._scripts[name], line_keys(self.prefix, line)

        async def attempt(with_source: bool) -> Any:
            head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
            now = "" if self._test_clock is None else str(self._test_clock())
            return await self._link.call(keys.keys[0], *head, 9, *keys.keys, now, "", "", "", numbers, blob, "", "")

        reply = await self._healed(attempt, name)
        return reply[1], codec.unpack_numbers(reply[4]), reply[5]

    async def _directory(self, what: int, numbers: bytes, blob: bytes) -> tuple[bytes, bytes]:
        script, keys = self._scripts["directory"], directory_keys(self.prefix)
        permanent = "1" if self._link.permanent_keys else ""

        async def attempt(with_source: bool) -> Any:
            head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
            now = "" if self._test_clock is None else str(self._test_clock())
            return await self._link.call(keys[0], *head, len(keys), *keys, now, what, numbers, blob, permanent)

        reply = await self._healed(attempt, "directory")
        return reply[1], reply[2]

    def _batcher(
        self,
        name: str,
        line: Line,
        run: Callable[[Line, list[Any]], Awaitable[list[Any]]],
        size_of: Callable[[Any], int],
    ) -> Batcher[Any, Any]:
        key = (name, line)
        batcher = self._batchers.get(key)
        if batcher is None:

            def idle() -> None:
                self._batchers.pop(key, None)

            batcher = self._batchers[key] = Batcher(
                lambda items: run(line, items), lambda item: item.id, size_of, idle, self.limits
            )
        return batcher

    def _alone(self, name: str, line: Line) -> asyncio.Lock:
        """Operations that are not joined still have one call in flight per line."""
        if len(self._locks) > 4096:
            self._locks = {key: lock for key, lock in self._locks.items() if lock.locked()}
        return self._locks.setdefault((name, line), asyncio.Lock())

    # --- operations ---

    async def send(self, line: Line, items: Sequence[SendItem], policy_version: int = 0) -> list[SendResult]:
        # The version is part of the batch's identity: a batch is refused whole when the line knows a newer one.
        async def run(line: Line, items: list[SendItem]) -> list[SendResult]:
            topic = line.topic.encode() if line.wide else None
            encoded = codec.encode_send(items, policy_version, topic)
            _, _, n, _ = await self._call("send", line, *encoded, variant=policy_version)
            states = codec.STATES
            return [
                SendResult(_CODES[n[i]], states[n[i + 1]] or State.READY, n[i + 2], n[i + 3])
                for i in range(0, len(n), 4)
            ]

        name = f"send{policy_version}" if policy_version else "send"
        return await self._batcher(name, line, run, _send_size).call(items)

    async def pull(self, line: Line, pull: Pull) -> Pulled:
        base = os.urandom(8)
        numbers = [pull.default_lease_ms, pull.wait_ms, PULL_BYTES]
        for credit in pull.credits:
            numbers += (credit.max, credit.lease_ms or 0)
        async with self._alone("pull", line):
            now_ms, said, n, blob = await self._call("pull", line, codec.pack_numbers(numbers), base, self._process)
        jobs, corrupt = codec.decode_pulled(n, blob, line.topic, base, now_ms)
        if corrupt:
            dead = [
                Release(job.id, job.lease, dead=Reason.CORRUPT, error="the stored body does not match its checksum")
                for job in corrupt
            ]
            await self.release(line, dead)
        deaths = (Reason.EXPIRED,) * n[3] + (Reason.EXHAUSTED,) * n[4] + (Reason.CORRUPT,) * len(corrupt)
        return Pulled(jobs, None if n[0] < 0 else n[0], bool(n[1]) or bool(corrupt), now_ms, not said & 2, deaths, n[2])

    async def ack(self, line: Line, items: Sequence[Ref]) -> list[Done]:
        async def run(line: Line, items: list[Ref]) -> list[Done]:
            _, _, n, _ = await self._call("ack", line, *_refs(items))
            return [Done(_CODES[code]) for code in n]

        return await self._batcher("ack", line, run, _id_size).call(items)

    async def release(self, line: Line, items: Sequence[Release]) -> list[Done]:
        async def run(line: Line, items: list[Release]) -> list[Done]:
            numbers: list[float] = []
            pieces: list[bytes] = []
            errors: list[bytes] = []
            for item in items:
                id, token, error = codec.pack_id(item.id), codec.token_bytes(item.token), _error_bytes(item.error)
                delay = -1 if item.delay_ms is None else item.delay_ms
                numbers += (
                    len(id),
                    len(token),
                    delay,
                    int(item.count),
                    codec.REASON_NUMBER[item.dead],
                    item.jitter_draw,
                    len(error),
                )
                pieces += (id, token)
                errors.append(error)
            _, _, n, _ = await self._call("release", line, codec.pack_numbers(numbers), b"".join(pieces + errors))
            return [Done(_CODES[n[i]], n[i + 1], codec.REASONS[n[i + 2]]) for i in range(0, len(n), 3)]

        return await self._batcher("release", line, run, _id_size).call(items)

    async def extend(self, line: Line, items: Sequence[Extend]) -> list[Done]:
        async def run(line: Line, items: list[Extend]) -> list[Done]:
            numbers: list[int] = []
            pieces: list[bytes] = []
            for item in items:
                id, token = codec.pack_id(item.id), codec.token_bytes(item.token)
                numbers += (len(id), len(token), item.lease_ms)
                pieces += (id, token)
            _, _, n, _ = await self._call("extend", line, codec.pack_numbers(numbers), b"".join(pieces))
            return [Done(_CODES[n[i]], n[i + 1]) for i in range(0, len(n), 2)]

        return await self._batcher("extend", line, run, _id_size).call(items)

    async def cancel(self, line: Line, ids: Sequence[str], forget: bool = False) -> list[Done]:
        async def run(line: Line, items: list[Ref]) -> list[Done]:
            packed = [codec.pack_id(item.id) for item in items]
            numbers = [n for id in packed for n in (len(id), 0, int(forget))]
            _, _, n, _ = await self._call("cancel", line, codec.pack_numbers(numbers), b"".join(packed), variant=forget)
            return [Done(_CODES[code]) for code in n]

        return await self._batcher(f"cancel{forget:d}", line, run, _id_size).call([Ref(id) for id in ids])

    async def edit(self, line: Line, items: Sequence[Edit]) -> list[Done]:
        async def run(line: Line, items: list[Edit]) -> list[Done]:
            _, _, n, _ = await self._call("edit", line, *_edits(items))
            return [Done(_CODES[n[i]], n[i + 1], version=n[i + 2]) for i in range(0, len(n), 3)]

        return await self._batcher("edit", line, run, lambda item: len(item.body or b"")).call(items)

    async def read(self, line: Line, ids: Sequence[str], body: bool = True) -> list[Job | None]:
        jobs: list[Job | None] = []
        for start in range(0, len(ids), 500):
            packed = [codec.pack_id(id) for id in ids[start : start + 500]]
            numbers = [int(body), *map(len, packed)]
            _, n, blob = await self._look("read", line, codec.pack_numbers(numbers), b"".join(packed))
            jobs += codec.decode_shown(n, blob, line.topic)
        return jobs

    async def list(self, line: Line, query: Query) -> Page:
        if query.state in (None, State.DEAD) and not query.cursor:
            while (await self.clean(line)).more:
                pass  # deaths by time are written down first, so that they stand in the index
        tag = (query.tag or "").encode()
        state = 0 if query.state is None else codec.STATE_NUMBER[query.state]
        after = -1 if query.due_after_ms is None else query.due_after_ms
        before = -1 if query.due_before_ms is None else query.due_before_ms
        numbers = [state, query.limit, int(query.body), after, before, len(tag), len(query.cursor)]
        now_ms, n, blob = await self._look("list", line, codec.pack_numbers(numbers), tag + query.cursor)
        jobs = codec.decode_shown(n[1:], blob, line.topic, n[0])
        return Page([job for job in jobs if job is not None], blob[: n[0]] or None, now_ms)

    async def stats(self, line: Line, bands_ms: Sequence[int] = ()) -> Stats:
        now_ms, n, _ = await self._look("stats", line, codec.pack_numbers(list(bands_ms)))
        reasons = {reason.value: count for reason, count in zip(Reason, n[6:10], strict=True)}
        return Stats(
            scheduled=n[0], ready=n[1], leased=n[2], done=n[3], dead=sum(n[6:10]), cancelled=n[4], broken=n[5],
            next_due_at_ms=None if n[10] < 0 else n[10], oldest_ready_at_ms=None if n[11] < 0 else n[11],
            paused_until_ms=None if n[12] < 0 else min(n[12], LAST_MS), waiting=bool(n[13]), dead_by_reason=reasons,
            now_ms=now_ms, bands=tuple(n[14:]) if bands_ms else (),
        )  # fmt: skip

    async def _control(self, line: Line, *numbers: int) -> bool:
        async with self._alone("control", line):
            _, _, n, _ = await self._call("control", line, codec.pack_numbers(list(numbers)))
        return bool(n[0])

    async def control(self, line: Line, control: Control) -> None:
        values = (control.pause_until_ms, control.max_in_flight, control.policy_version)
        await self._control(line, 1, *(-1 if value is None else value for value in values))

    async def agenda_noted(self, line: Line, at_ms: int) -> None:
        await self._control(line, 2, at_ms)

    async def _registered(self, topics: Sequence[tuple[str, str]]) -> None:
        """The directory has these topics: their lines need not say any more that they are not listed."""
        for topic in topics:
            for line in self._unlisted.pop(topic, ()):
                await self._control(line, 3)

    async def retire(self, line: Line) -> bool:
        return await self._control(line, 4)

    async def _dead(
        self, line: Line, what: int, ids: Sequence[str] | None, limit: int, delay: int, most: int
    ) -> list[tuple[str, Done]]:
        results: list[tuple[str, Done]] = []
        parts = [ids[i : i + 500] for i in range(0, len(ids), 500)] if ids is not None else [[]]
        for part in parts:
            packed = [codec.pack_id(id) for id in part]
            numbers = [what, 0 if ids is not None else min(limit, 500), delay, most, *map(len, packed)]
            async with self._alone("dead", line):
                _, _, n, blob = await self._call("dead", line, codec.pack_numbers(numbers), b"".join(packed))
            at = 0
            for i in range(0, len(n), 4):
                id = codec.unpack_id(blob[at : at + n[i]])
                at += n[i]
                results.append((id, Done(_CODES[n[i + 1]], n[i + 2], version=n[i + 3])))
        return results

    async def revive(self, line: Line, revive: Revive) -> list[tuple[str, Done]]:
        most = (revive.max_attempts or 0) if revive.set_max_attempts else -1
        return await self._dead(line, 1, revive.ids, revive.limit, revive.delay_ms, most)

    async def purge(self, line: Line, purge: Purge) -> list[tuple[str, Done]]:
        return await self._dead(line, 2, purge.ids, purge.limit, 0, -1)

    async def clean(self, line: Line, limit: int = 200) -> Cleaned:
        async with self._alone("clean", line):
            _, _, n, _ = await self._call("clean", line, codec.pack_numbers([min(limit, 200)]))
        return Cleaned(n[0], n[1], n[2], n[3], None if n[4] < 0 else n[4], bool(n[5]))


def _send_size(item: SendItem) -> int:
    return len(item.body)


def _id_size(item: Any) -> int:
    return 64


def _error_bytes(error: str | None) -> bytes:
    """At most 1 KiB, cut between characters."""
    return (error or "").encode(errors="replace")[:1024].decode(errors="ignore").encode()


def _refs(items: Sequence[Ref]) -> tuple[bytes, bytes]:
    numbers: list[int] = []
    pieces: list[bytes] = []
    for item in items:
        id, token = codec.pack_id(item.id), codec.token_bytes(item.token)
        numbers += (len(id), len(token))
        pieces += (id, token)
    return codec.pack_numbers(numbers), b"".join(pieces)


def _edits(items: Sequence[Edit]) -> tuple[bytes, bytes]:
    numbers: list[int] = []
    ids: list[bytes] = []
    pieces: list[bytes] = []
    for item in items:
        id = codec.pack_id(item.id)
        when_kind, when = (
            (1, item.delay_ms) if item.delay_ms is not None else (2, item.at_ms) if item.at_ms is not None else (0, 0)
        )
        body = item.body if item.body is not None else b""
        kind = -1 if item.body is None else int(item.kind or 0)
        tags = None if item.tags is None else codec.pack_tags(item.tags)
        policy = b"" if item.policy is None else codec.pack_policy(item.policy)
        ttl = -1 if item.ttl_ms is None else item.ttl_ms
        ids.append(id)
        pieces += (body, item.headers or b"", tags or b"", policy)
        numbers += (
            len(id), 0, item.version or 0, when_kind, when, ttl, kind, codec.checksum(body), len(body),
            -1 if item.headers is None else len(item.headers), -1 if tags is None else len(tags), len(policy),
        )  # fmt: skip
    return codec.pack_numbers(numbers), b"".join(ids + pieces)
