"""All tokens of the store in the memory of a server that checks them, and for how long they may be believed.

    every BEAT_S, and after an announcement:

    beat(loaded generation) --> the current one is the same    believe the tokens until LEASE_S after the beat was sent
                            --> it is another one              load the changes, drop what they end, beat again

A server that is cut off from the store, or stopped, cannot hear that a token was revoked. Its lease ends by itself,
because it is measured from the moment *before* the beat was sent, on this machine's clock. So whoever changes a token
waits for the servers that answer, and LEASE_S for the others (`tokens`).

The clock is not the event loop's: uvloop caches its own, and a stopped process would go on with the old value. It
counts while the machine is suspended, too.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from functools import partial

from .errors import DuelineError
from .rounds import Rounds
from .store import Store
from .timer import LoopTimer, Timer
from .tokens import LEASE_S, Token, read_token

BEAT_S = 0.5
BACK_OFF_S = (0.05, BEAT_S)
LEAVE_WITHIN_S = 1.0
uptime_s: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""A clock that never stops or jumps while the machine is up, not even while it is suspended."""


class TokenCache:
    """The tokens that are not revoked, by id. `changed` is called after each load that brought changes. `lease_s` and
    `clock` are for tests."""

    def __init__(
        self,
        store: Store,
        timer: Timer | None = None,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = uptime_s,
    ) -> None:
        self.server = secrets.token_hex(8)
        self.tokens: dict[str, Token] = {}
        self.generation = 0
        self.changed: Callable[[], None] | None = None
        self._store = store
        self._lease_s = lease_s
        self.clock = clock
        self.until_s = 0.0  # on that clock: how long the tokens may be used
        self._rounds = Rounds(self._round, timer or LoopTimer(), "checking the tokens failed", BACK_OFF_S)

    @property
    def is_current(self) -> bool:
        """Whether the tokens in the cache may be used now."""
        return self.clock() < self.until_s

    async def start(self) -> None:
        """Load the tokens and keep them current. If the store does not answer, that is tried until it does."""
        try:
            await self._store.tokens.watch(self._rounds.wake)
            while not self.until_s:
                await self._round()
        except DuelineError:
            pass
        self._rounds.start()

    async def stop(self) -> None:
        """Accept no token from now on, and tell the store. It may be called twice, and before `start`."""
        self.until_s = 0.0
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._rounds.stop()
                self.until_s = 0.0
                await self._store.tokens.leave(self.server)
        except (TimeoutError, DuelineError):
            pass  # its lease ends by itself

    async def _round(self) -> float:
        sent_s = self.clock()
        generation = await self._store.tokens.beat(self.server, self.generation)
        if generation == self.generation:
            self.until_s = sent_s + self._lease_s
            return BEAT_S
        await self._load(generation)
        return 0.0

    async def _load(self, generation: int) -> None:
        """Read what has changed. If the store has an older generation than this process, it lost data: read all."""
        is_older = generation < self.generation
        tokens = {} if is_older else dict(self.tokens)
        after: int | None = 0 if is_older else self.generation
        now_ms = self._store.now_ms()
        while after is not None:
            page = await self._store.tokens.changed(after)
            for entry in page.entries:
                token = read_token(entry)
                if token.revoked_at_ms is None:
                    tokens[token.id] = token
                else:
                    tokens.pop(token.id, None)
            after, generation = page.after, page.generation
        self.tokens = {id: token for id, token in tokens.items() if not token.is_expired(now_ms)}
        self.generation = generation
        if self.changed is not None:
            self.changed()
