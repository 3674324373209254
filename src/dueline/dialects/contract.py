"""The contract between a server and its dialects.

    DialectSpec --build(settings, context)--> Dialect     for every row of the table, served or not
    Dialect      routes      what it answers
                 couriers    its outgoing calls; a server makes them even while the dialect is disabled
                 metrics     its own metrics, shown while it is enabled
                 start, stop its background work, while it is enabled

A dialect learns about its server from the DialectContext only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ..api.answers import Info
from ..engine.engine import Engine
from ..engine.errors import DuelineError
from ..metrics.metric import Samples
from ..push.courier import Courier
from ..push.discovery import Resolver
from ..push.discovery.static import StaticResolver
from ..rights import Grant
from .http import Request, Response, Route


def _fine(_: object) -> None:
    """Accept anything."""


CheckUrl = Callable[[str, str, Grant], object]
"""check(URL, the namespace that it is for, whose call it is). Raises InvalidField or EgressRefused."""


class PushRules(msgspec.Struct, frozen=True):
    """The checks of push targets. Each returns nothing or raises: `url` and `service` raise EgressRefused (403), `url`
    also QuotaExceeded (429), the others InvalidField with the reason. The caller adds the name of the field. `service`
    gets the name of a service and whose call it is. `allow_list` checks one for a token. `mask` returns the form in
    which a secret is shown."""

    url: CheckUrl = lambda url, namespace, grant: None
    service: Callable[[str, Grant], object] = lambda service, grant: None
    allow_list: Callable[[Sequence[str]], object] = _fine
    headers: Callable[[Sequence[tuple[str, str]]], object] = _fine
    secret: Callable[[str], object] = _fine
    mask: Callable[[str], str] = lambda secret: f"whsec_...{secret[-4:]}"


async def _no_samples() -> list[Samples]:
    return []


class DialectContext(msgspec.Struct, frozen=True):
    """The server that a dialect is part of, which may be several processes."""

    engine: Engine
    info: Callable[[], Info]  # the data of /v1/info
    push: PushRules = PushRules()
    resolver: Resolver = StaticResolver({})  # where services run
    ready: Callable[[], bool] = lambda: True  # whether sends and pulls are accepted
    store_answers: Callable[[], bool] = lambda: True
    samples: Callable[[], Awaitable[list[Samples]]] = _no_samples  # the metrics of all processes
    folder: Path | None = None  # shared by the server's processes; None if there is only one


class DialectMetrics:
    """The metrics of a dialect; this one has none. To add some, `snapshot` is enough. Siblings exchange snapshots, so
    `page` sees those of all processes. A snapshot may hold metrics that `page` replaces."""

    def snapshot(self) -> list[Samples]:
        """The metrics of this process."""
        return []

    async def page(self, merged: list[Samples]) -> list[Samples]:
        """The metrics to show, from the merged metrics of all processes."""
        return merged

    def content_type(self, accept: str, chosen: str) -> str:
        """The content type of the page. `chosen` is the usual one for this Accept header."""
        return chosen


class Dialect(ABC):
    """One wire protocol. It may also be a SpaceOwner or a PathSpeller (dialects.http)."""

    namespace: str | None = None  # where its jobs are; None: the request names it
    metrics = DialectMetrics()  # a dialect with metrics of its own sets `self.metrics` in its constructor

    @abstractmethod
    def routes(self) -> Sequence[Route]:
        """All of its paths."""

    @abstractmethod
    def failed(self, request: Request, error: DuelineError) -> Response:
        """The answer for a refusal, in this dialect's format."""

    def couriers(self) -> Mapping[str, Courier]:
        """The couriers that its push targets name (PushTarget.courier)."""
        return {}

    async def start(self) -> None:  # noqa: B027 (most dialects have nothing to start)
        """Called when the server begins to serve."""

    async def stop(self) -> None:  # noqa: B027
        """Called when the server stops. It may be called twice, and before `start`."""
