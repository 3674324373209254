"""The native API of a store without a server: the handlers of a server, called on an engine in this process.

Its replies are those of a server on the same store. Only servers make outgoing calls: a push target is checked for its
form here, not against the egress rules, and nothing is called.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec

from .._version import __version__
from ..api.answers import Info, Readiness
from ..api.operations import READY
from ..api.reply import Reply
from ..dialects.native import NativeApi, PushRules
from ..engine.engine import Engine
from ..push.forwarded import check_target_headers
from ..push.signing import check_secret, masked
from ..store.valkey.store import ValkeyStore
from .store_check import Facts, Probe, store_words


class DirectApi(NativeApi):
    """One store through one engine, which the caller starts and stops. `name` is how the store is shown."""

    def __init__(self, engine: Engine, store: ValkeyStore, name: str, durability: str) -> None:
        rules = PushRules(headers=check_target_headers, secret=check_secret, mask=masked)
        super().__init__(engine, self._info, rules)
        self._store = store
        self._name = name
        self._durability = durability
        self._facts: Facts | None = None

    def answer(self, operation: str, namespace: str | None, params: tuple[str, ...], request: Any) -> Awaitable[Reply]:
        if operation in ("info", READY.name):
            return self._about_itself(operation, namespace)
        return super().answer(operation, namespace, params, request)

    async def _about_itself(self, operation: str, namespace: str | None) -> Reply:
        if operation == READY.name:
            return Reply(Readiness(True))
        if self._facts is None:
            probe = Probe(self._store.url, self._store.prefix)
            try:
                self._facts = msgspec.structs.replace(await probe.facts(), appendfsync=await probe.appendfsync())
            finally:
                await probe.stop()
        return await super().answer(operation, namespace, (), None)

    def _info(self) -> Info:
        return Info(
            version=__version__,
            durability=self._durability,
            store=store_words(self._name, self._facts),
            limits=msgspec.structs.asdict(self._engine.limits),
            clock_offset_ms=round(self._store.clock.offset_ms),
            auth="none",
        )
