"""The native API of a store without a server: the handlers of a server, called on an engine in this process.

Its replies are those of a server on the same store. Only servers make outgoing calls: a push target is checked for its
form here, not against the egress rules, and nothing is called.
"""

from __future__ import annotations

import msgspec

from .._version import __version__
from ..api.answers import Info, Readiness
from ..api.operations import READY
from ..api.reply import Reply
from ..dialects.contract import PushRules
from ..dialects.native.api import NativeApi
from ..dialects.native.wire import Caller
from ..engine.engine import Engine
from ..push.egress import check_token_list
from ..push.header_rules import check_target_headers
from ..push.signing import check_secret, masked
from ..runtime.access import StoreAccess
from ..runtime.facts import store_words
from ..runtime.watch import StoreWatch


class DirectApi(NativeApi):
    """One store through one engine, which the caller starts and stops. `name` is how the store is shown."""

    def __init__(self, engine: Engine, access: StoreAccess, watch: StoreWatch, name: str) -> None:
        rules = PushRules(allow_list=check_token_list, headers=check_target_headers, secret=check_secret, mask=masked)
        super().__init__(engine, self._info, rules)
        self.handlers[READY.name] = self._ready
        self._access = access
        self._watch = watch
        self._name = name

    def _info(self) -> Info:
        return Info(
            version=__version__,
            durability=self._access.location.durability,
            store=store_words(self._name, self._access.facts),
            limits=msgspec.structs.asdict(self._engine.limits),
            clock_offset_ms=round(self._access.store.clock.offset_ms),
            auth="none",
        )

    async def _ready(self, _caller: Caller, _request: None) -> Reply:
        reasons, warnings = (
            tuple(map(msgspec.to_builtins, found)) for found in (self._watch.reasons(), self._watch.warnings())
        )
        return Reply(Readiness(not reasons, reasons, warnings))
