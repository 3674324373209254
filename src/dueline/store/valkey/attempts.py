"""One script call, and how it is tried again. All retries are decided in one place, `_healed`.

    post      one try without a coroutine; its reply is handed to a callback
    once      the same for a caller that awaits

If a first try gets anything but a plain reply, `_on_reply` hands the call to a task. The task repeats it with the same
nonce, so that the call takes effect once. `calls` says what is retried.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from redis.exceptions import NoScriptError, OutOfMemoryError, ResponseError

from ...engine.completion import Done, leave
from ...engine.errors import ClockStep, DuelineError, Loading, StoreDown, StoreFull, UnknownOutcome
from ...engine.guards import Guard
from ...engine.outcomes import OutcomeHook
from .clock import StoreClock
from .epochs import Carried
from .link import Link, LinkLost, NotNow, WrongKind
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


class ScriptCall:
    """A changing call of one script. However often it is sent, its nonce makes it take effect once."""

    __slots__ = ("asked_ms", "blob", "caller", "carried", "extra", "keys", "name", "nonce", "numbers", "started")

    def __init__(
        self,
        name: str,
        keys: tuple[str, ...],
        caller: str,
        nonce: int,
        numbers: bytes,
        blob: bytes,
        extra: tuple[str, ...],
        carried: Carried,
    ) -> None:
        self.name = name
        self.keys = keys
        self.caller = caller
        self.nonce = nonce
        self.numbers = numbers
        self.blob = blob
        self.extra = extra
        self.carried = carried
        self.started = time.monotonic()
        self.asked_ms = 0.0  # of the last try


class Attempts:
    """Script calls on a link. `test_clock`: the time to pass to every script (tests). `repeat_every`: repeat each n-th
    change (tests)."""

    def __init__(
        self,
        link: Link,
        test_clock: Callable[[], int] | None,
        patience_s: float,
        lua_patch: Patch | None,
        on_call: Callable[[str, float], None] | None,
        store_clock: StoreClock | None = None,
    ) -> None:
        self.link = link
        self.clock = store_clock or StoreClock()
        self.hook = OutcomeHook()
        self.repeat_every = 0
        self.reconnects = 0
        self.errors: dict[str, int] = {}  # calls that failed for good, by code
        self._test_clock = test_clock
        self._patience_s = patience_s
        self._on_call = on_call
        self._scripts = load_scripts(lua_patch)
        self._process = os.urandom(6).hex()
        self._nonce = int.from_bytes(os.urandom(4), "big") << 24
        self._brought_at: dict[str, float] = {}  # when the source of a script was last sent along

    async def _healed(
        self,
        attempt: Callable[[bool], Awaitable[Any]],
        name: str,
        first: BaseException | None = None,
        started: float | None = None,
    ) -> Any:
        """Repeats `attempt(with_source)` until it succeeds. Decides here alone what can be retried. `first`: the error
        of a first try that was made without a coroutine, at the time `started`."""
        started = time.monotonic() if started is None else started
        deadline = started + self._patience_s
        with_source = written = loading = False
        message, pause = "", 0.01
        while True:
            refused_s: float | None = None
            tried_at = time.monotonic() if first is None else started
            try:
                if first is not None:
                    failed, first = first, None
                    raise failed
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
        return await self._repeated(self._new(name, keys, slot, numbers, blob, extra, carried))

    def post(
        self,
        name: str,
        keys: tuple[str, ...],
        slot: str,
        numbers: bytes,
        blob: bytes,
        extra: tuple[str, ...],
        carried: Carried,
        done: Done,
    ) -> None:
        """The same without a coroutine. A store that is not connected, or that has a witness, is asked by a task."""
        try:
            call = self._new(name, keys, slot, numbers, blob, extra, carried)
        except StoreDown as error:
            asyncio.get_running_loop().call_soon(done, error)  # not at once: the next call would be refused, too
            return
        if not self.link.post(keys[0], self._words(call, False), partial(self._on_reply, call, done)):
            leave(self._repeated(call), done)

    def _on_reply(self, call: ScriptCall, done: Done, reply: Any) -> None:
        """The first try was answered, or failed."""
        if isinstance(reply, BaseException):
            leave(self._repeated(call, reply), done)
            return
        if self._on_call is not None:
            self._on_call(call.name, time.monotonic() - call.started)
        answer = read_reply(reply)
        in_time = self._test_clock is not None or self.clock.observe(answer[1], call.asked_ms)
        if self.repeat_every and call.nonce % self.repeat_every == 0:
            leave(self._repeated(call), done)
        elif answer[0] != 1:
            done(answer)
        elif not in_time:
            self.link.trip(Guard.CLOCK_STEP, call.keys[0], CLOCK_JUMPED)
            done(ClockStep())
        else:  # it was only slow to arrive
            leave(self._repeated(call), done)

    def _new(
        self,
        name: str,
        keys: tuple[str, ...],
        slot: str,
        numbers: bytes,
        blob: bytes,
        extra: tuple[str, ...],
        carried: Carried,
    ) -> ScriptCall:
        """Raises StoreDown if a guard refuses it."""
        guards = self.link.guards
        if guards is not None and guards.closed and name in SENDS:
            self._refuse(keys[0])
        self._nonce += 1
        return ScriptCall(name, keys, self._caller(name, slot), self._nonce, numbers, blob, extra, carried)

    def _words(self, call: ScriptCall, with_source: bool) -> tuple[Any, ...]:
        """The command of a try that begins now."""
        call.asked_ms = self.clock.asked()
        script, keys, test_clock = self._scripts[call.name], call.keys, self._test_clock
        head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
        now, expected = ("", self.clock.expectation()) if test_clock is None else (str(test_clock()), (0, 0))
        times, nonce = expectation(expected, call.carried), call.nonce.to_bytes(8, "big")
        return (*head, len(keys), *keys, now, times, call.caller, nonce, call.numbers, call.blob, *call.extra)

    async def _repeated(self, call: ScriptCall, first: BaseException | None = None) -> Reply:
        """Try a call until it is answered. `first`: how a first try failed."""

        async def attempt(with_source: bool) -> Any:
            return await self._change(call.keys[0], *self._words(call, with_source))

        while True:
            try:
                reply = await self._healed(attempt, call.name, first, call.started)
                if self.repeat_every and call.nonce % self.repeat_every == 0:
                    reply = await self._healed(attempt, call.name)
            except asyncio.CancelledError:
                if self.hook.outcomes is not None:
                    self.hook.outcomes.lost()
                raise
            first = None
            answer = read_reply(reply)
            in_time = self._test_clock is not None or self.clock.observe(answer[1], call.asked_ms)
            if answer[0] != 1:
                return answer
            if not in_time:
                self.link.trip(Guard.CLOCK_STEP, call.keys[0], CLOCK_JUMPED)
                raise ClockStep()
            # The call was only slow to arrive. Repeat it with the same nonce, so that it cannot take effect twice.
            if time.monotonic() > call.started + self._patience_s:  # the clock guard refused every try
                raise StoreDown("the store does not answer in time; nothing was sent to it")

    def _refuse(self, key: str) -> None:
        """Raise StoreDown if the shard of a key must not get sends, although it would accept them."""
        guards, owner = self.link.guards, self.link.owner_now(key)
        why = None if guards is None else guards.refusal(str(owner or ""))
        if why is not None:
            raise StoreDown(why)
