"""The native API without HTTP: a server's handlers, called on an engine in this process.

    DirectApi(engine, access) --answer(method, target, headers, body)--> Response

Answers are byte for byte those of a server on the same store. Only servers make outgoing calls: a push target is
checked for its form here, not against the egress rules, and nothing is called.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .._version import __version__
from ..dialects.contract import DialectContext, PushRules
from ..dialects.http import Request, Response
from ..dialects.native.answers import InfoView
from ..dialects.native.dialect import NativeDialect
from ..dialects.settings import DialectSettings
from ..engine.engine import Engine
from ..push.forwarded import check_target_headers
from ..push.signing import check_secret, masked
from ..runtime.access import StoreAccess
from ..runtime.facts import store_words
from .router import Router
from .system import SystemRoutes


class DirectApi:
    """One store through one engine, which the caller starts and stops. `name` is how the store is shown."""

    def __init__(self, engine: Engine, access: StoreAccess, name: str) -> None:
        self._engine = engine
        self._access = access
        self._name = name
        rules = PushRules(headers=check_target_headers, secret=check_secret, mask=masked)
        native = NativeDialect(DialectSettings(), DialectContext(engine, self._info, rules))
        self._router = Router([SystemRoutes(__version__, tuple, tuple, _no_metrics, documents=False), native])

    async def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response:
        """The answer of a server. `target` is as in a request line; header names may be in any case."""
        verb, path, query, found = self._router.locate(method.encode(), target.encode())
        lower = {name.lower(): value for name, value in headers.items()}
        return await self._router.respond(found, Request(verb, path, query, lower, body, found.params))

    def _info(self) -> InfoView:
        return InfoView(
            version=__version__,
            namespace="default",
            durability="standard" if self._access.place.status is None else "fsync",
            store=store_words(self._name, self._access.facts),
            limits=msgspec.structs.asdict(self._engine.limits),
            clock_offset_ms=round(self._access.store.clock.offset_ms),
        )


async def _no_metrics(_accept: str) -> tuple[bytes, str]:
    return b"", "text/plain"
