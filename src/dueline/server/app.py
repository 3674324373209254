"""The wiring of one server process: the only place where store, engine, dialects, front and telemetry meet.

listen   the front accepts connections. /healthz and /readyz work at once; every other call gets 503 "loading" until
         `open` is done. Polls get it after a second, because polling clients retry without a pause
open     waits for the store, checks it, connects to it and starts the engine
stop     answers parked polls with an empty result, finishes running calls, closes connections, stops engine and store
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import structlog

from .._version import __version__
from ..api.answers import Info
from ..config.ladder import ladder_of
from ..config.load import parse_address
from ..config.settings import Settings, namespaces_with_own_ids
from ..dialects.camellia import CamelliaDialect, CamelliaOptions
from ..dialects.exfe import ExfeDialect, ExfeOptions
from ..dialects.http import Dialect, Request, Route, SpaceOwner
from ..dialects.native import NativeDialect
from ..dialects.ouqiang import OuqiangDialect, OuqiangOptions
from ..dialects.spring import SpringDialect, SpringOptions
from ..dialects.youzan import YouzanDialect, YouzanOptions
from ..engine.commands import TopicView
from ..engine.engine import Engine
from ..engine.errors import DuelineError, Loading, Unavailable
from ..engine.limits import INTERNAL_NAMESPACE
from ..store.valkey.embedded import Status
from ..store.valkey.store import ValkeyStore, WrongStore
from ..telemetry import gather
from ..telemetry.exposition import exposed
from ..telemetry.families import Family, Kind, Merge, counter, gauge, merged
from ..telemetry.metrics import CallMetrics, HttpMetrics
from ..telemetry.notices import Notices
from ..telemetry.push_notices import PushNotices
from ..telemetry.siblings import Siblings
from .browser import BrowserRules
from .camellia import CamelliaMetrics, CamelliaNode, content_type, families_of
from .front import Front, FrontLimits
from .health import Health, Phase, Reason
from .listeners import addresses
from .push import EurekaMissing, Push
from .router import Router
from .send_notices import SendNotices
from .store_check import Facts, Probe, refusal, scope_refusal, store_words
from .system import SystemRoutes

STORE_WAIT_S = 30.0  # for an external store at the start
STORE_LATE_S = 0.8  # after this long without an answer, a warning is logged
TOPICS_SHOWN = 200
TOPICS_FRESH_S = 5.0
LAST_CALLS_S = 2.0
MAX_PUSH_DRAIN_S = 6.0  # for running calls to push targets, so that the whole shutdown takes at most 10 s
LOADING = "the server is starting; nothing was done"
CALM_S = 1.0  # how long a poll is held while the server is starting


class StartRefused(Exception):
    """The server cannot run with this store. Exit code 1."""


class App:
    """`embedded` returns the state of the embedded store, None for an external one. `folder` holds the sockets over
    which the worker processes of one server exchange metrics."""

    def __init__(
        self,
        settings: Settings,
        store_url: str,
        embedded: Callable[[], Status | None],
        index: int = 0,
        folder: Path | None = None,
    ) -> None:
        self.settings = settings
        self.durability = durability_of(settings)
        self.http = HttpMetrics()
        self.calls = CallMetrics()
        self.store = ValkeyStore(
            store_url, prefix=settings.store.prefix, limits=settings.limits, on_call=self.calls.called
        )
        self.engine = Engine(
            self.store,
            settings.limits,
            namespace_ids=namespaces_with_own_ids(settings.dialects),
            idle_ms=settings.topics.idle_ms,
        )
        self._notices = Notices("dueline.server")
        self._sends = SendNotices(self.engine, self._notices)
        self.engine.watch_sends(self._sends)
        self.pushed = PushNotices(Notices("dueline.push"))
        self.push = Push(settings, self.engine, self.pushed, self.pushed.refused_at_send)
        self._probe = Probe(store_url, settings.store.prefix)
        self.health = Health(self._probe, self.durability, embedded, lambda: self.store.clock.stepped, self._check)
        self.health.changed = self._readiness_changed
        self._embedded = embedded
        self._siblings = Siblings(folder, index, self.snapshot)
        self._facts: Facts | None = None
        self._topics: tuple[float, list[Family]] = (0.0, [])
        self._always_open: frozenset[str] = frozenset()
        self._started = asyncio.Event()  # set once the start has succeeded or failed
        node = CamelliaNode(folder, lambda: not self.health.reasons(), self._families)
        self._camellia = CamelliaDialect(self.engine, settings.limits, camellia_options(settings), node)
        self._camellia_metrics = CamelliaMetrics(self._camellia)
        self._dialects = self._speak()
        self.fronts = [self._front(address, names) for address, names in addresses(settings).items()]
        self._log = structlog.get_logger("dueline.server")

    # --- dialects and addresses -------------------------------------------------------------------------------------

    def _speak(self) -> dict[str, Dialect]:
        """Every dialect by its name in the settings. server.listeners decides which are served, and where."""
        return {
            "native": NativeDialect(self.engine, self.settings.limits, self.info, self.push.rules),
            "camellia": self._camellia,
            "ouqiang": OuqiangDialect(self.engine, _ouqiang(self.settings)),
            "youzan": YouzanDialect(self.engine, self.settings.limits, _youzan(self.settings)),
            "spring": SpringDialect(self.engine, _spring(self.settings), self.push.services),
            "exfe": ExfeDialect(self.engine, _exfe(self.settings), self.push.check_url),
        }

    def _front(self, address: str, names: Sequence[str]) -> Front:
        """A front for one address. Every address serves health and metrics."""
        is_main = address == self.settings.server.listen
        system = SystemRoutes(__version__, self.health.reasons, self.health.warnings, self.metrics, documents=is_main)
        self._always_open |= {route.name for route in system.routes()}
        dialects = [self._dialects[name] for name in names]
        alone = dialects[0] if not is_main and len(dialects) == 1 else None
        router = Router([system, *dialects], guard=self._guard, owner=alone if isinstance(alone, SpaceOwner) else None)
        limits = FrontLimits(
            max_body_bytes=self.settings.limits.max_request_bytes, max_connections=self.settings.server.max_connections
        )
        rules = BrowserRules.of(self.settings.server, loopback=parse_address(address, "listen").loopback)
        return Front(router, limits, answered=self.http.answered, browser_rules=rules)

    # --- life -------------------------------------------------------------------------------------------------------

    async def listen(self, listeners: Sequence[socket.socket]) -> None:
        """Accept connections, on one socket per address (server.listeners). Until `open` is done, calls get 503
        "loading"."""
        await self._siblings.start()
        for front, listener in zip(self.fronts, listeners, strict=True):
            await front.start(listener)

    async def open(self) -> None:
        """Wait for the store, check it, connect. Raises StartRefused."""
        self._facts = await self._until_store()
        while True:
            try:
                await self.store.start()
                await self._check()
                break
            except WrongStore as error:
                raise StartRefused(str(error)) from None
            except Unavailable as error:
                self._log.warning("the store is not ready yet", error=error.message)
                await asyncio.sleep(0.2)
        await self.engine.start()
        try:
            await self.push.start()
        except EurekaMissing as error:
            raise StartRefused(str(error)) from None
        self._camellia.monitor.start()
        self.health.phase = Phase.SERVING
        self._started.set()
        await self.health.start()

    async def stop(self, hasten: asyncio.Event) -> None:
        """Drain and stop. `hasten` cuts the wait for running calls short."""
        self.health.phase = Phase.DRAINING
        self._started.set()
        self._camellia.monitor.stop()
        self._sends.stop()
        drain_s = self.settings.server.drain_ms / 1000
        pushes = asyncio.create_task(self.push.stop(min(drain_s, MAX_PUSH_DRAIN_S), hasten))
        draining = asyncio.ensure_future(self._drain(drain_s))
        await self.engine.drain()
        hurry = asyncio.create_task(hasten.wait())
        await asyncio.wait((draining, hurry), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not draining.done():
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)
            await self._drain(0)
        await pushes
        # If the store is down, the engine's last calls would wait for it. Give them a moment, then cut the connection.
        ending = asyncio.create_task(self.engine.stop())
        await asyncio.wait([ending], timeout=LAST_CALLS_S)
        await self.health.stop()
        await self.store.stop()
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        await self._siblings.stop()

    async def _drain(self, timeout_s: float) -> None:
        await asyncio.gather(*(front.drain(timeout_s) for front in self.fronts))

    async def _check(self) -> None:
        """Check that it is still our store, and that these settings find all of its jobs. Raises WrongStore."""
        await self.store.check()
        why = await scope_refusal(self.store, self.settings.dialects)
        if why is not None:
            raise WrongStore(why)

    async def _until_store(self) -> Facts:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + STORE_WAIT_S
        late = loop.call_later(STORE_LATE_S, self._log.warning, "the store has not answered yet")
        pause_s = 0.05
        try:
            while (facts := await self.health.look()) is None:
                reasons = self.health.reasons()
                if self._embedded() is None and loop.time() > deadline_s:
                    why = reasons[0].message if reasons else "the store does not answer"
                    raise StartRefused(f"{why} (tried for {STORE_WAIT_S:g} s)")
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 1.0)
        finally:
            late.cancel()
        why = refusal(facts)
        if why is None and not await self._probe.runs_scripts():
            why = "the store does not let this user call scripts (EVAL)"
        if why is not None:
            raise StartRefused(why)
        return msgspec.structs.replace(facts, appendfsync=await self._probe.appendfsync())

    def _readiness_changed(self, reasons: Sequence[Reason]) -> None:
        """Refuse sends while the store may evict keys, because it could delete jobs that we accepted."""
        self.engine.close_sends(next((reason.message for reason in reasons if reason.code == "eviction"), None))

    def _guard(self, request: Request, route: Route) -> Awaitable[None] | None:
        if "authorization" in request.headers:
            self._notices.notice("token", "a token has no effect: this server checks none")
        if self.health.phase is not Phase.STARTING or route.always or route.name in self._always_open:
            return None
        if route.parks:
            return self._until_started()
        raise Loading(self._loading())

    async def _until_started(self) -> None:
        """Hold a poll before refusing it, because long-poll clients retry without a pause. If the start completes
        meanwhile, the poll continues normally."""
        try:
            async with asyncio.timeout(CALM_S):
                await self._started.wait()
        except TimeoutError:
            raise Loading(self._loading()) from None

    def _loading(self) -> str:
        """Why calls are not accepted yet, including an unreachable store."""
        away = [reason.message for reason in self.health.reasons() if reason.code == "store_down"]
        return f"{LOADING}: {away[0]}" if away else LOADING

    # --- info and metrics -------------------------------------------------------------------------------------------

    def info(self) -> Info:
        """The data of /v1/info. The dialect fills in the namespace of the request."""
        limits: dict[str, int] = msgspec.structs.asdict(self.settings.limits)
        return Info(
            version=__version__,
            namespace="default",
            durability=self.durability,
            store=self.store_text(),
            limits=limits,
            clock_offset_ms=round(self.store.clock.offset_ms),
            auth="none",
        )

    def store_text(self) -> str:
        """A description of the store, without secrets."""
        kind = "embedded" if self.settings.store.url is None else shown_url(self.settings.store.url)
        return store_words(kind, self._facts)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics of the whole server: this process, its siblings, and the topics in the store."""
        families = await self._families()
        camellia = self.settings.dialects.camellia.enabled
        if camellia:
            families = await self._camellia_metrics.page(families, self._asks_store())
        page, chosen = exposed([*families, *await self._stored()], accept)
        return page, content_type(accept, chosen) if camellia else chosen

    async def _families(self) -> list[Family]:
        return merged([self.snapshot(), *await self._siblings.others()])

    def _asks_store(self) -> bool:
        return self.health.phase is Phase.SERVING and self.health.up

    def snapshot(self) -> list[Family]:
        """The metrics of this process alone."""
        return [
            gather.of_build("embedded" if self.settings.store.url is None else "external", self.durability),
            *gather.of_engine(self.engine.figures, self.engine.waiters),
            *self.http.families(),
            gauge(
                "dueline_http_connections",
                "Open client connections.",
                {(): sum(front.connections for front in self.fronts)},
            ),
            *self.calls.families(),
            *self.pushed.families(),
            *(families_of(self._camellia.monitor.report()) if self.settings.dialects.camellia.enabled else ()),
            *self._of_store(),
            *gather.of_process(),
        ]

    def _of_store(self) -> list[Family]:
        clock, facts, status = self.store.clock, self.health.facts, self._embedded()
        steps = Family(
            "dueline_clock_steps", Kind.COUNTER, "Jumps of the store's clock.", (), Merge.MAX, numbers={(): clock.steps}
        )
        offset = gauge("dueline_clock_offset_seconds", "Store's clock less ours.", {(): clock.offset_ms / 1000})
        found = [
            gauge("dueline_store_up", "1: the store answers.", {(): int(self.health.up)}, merge=Merge.MIN),
            gauge(
                "dueline_ready", "1: sends and pulls are taken.", {(): int(not self.health.reasons())}, merge=Merge.MIN
            ),
            counter("dueline_store_reconnects", "Lost connections to the store.", (), {(): self.store.reconnects}),
            msgspec.structs.replace(offset, merge=Merge.MAX),
            steps,
        ]
        if facts is not None:
            store_wide = {
                "dueline_store_memory_bytes": ("Memory that the store uses.", facts.memory_bytes),
                "dueline_store_maxmemory_bytes": ("Its limit; 0: none.", facts.maxmemory_bytes),
                "dueline_store_full": ("1: sends are refused because the memory is full.", int(self.health.full)),
                "dueline_store_replicas": ("Connected replicas.", facts.replicas),
            }
            found += [gauge(name, help, {(): value}, merge=Merge.MAX) for name, (help, value) in store_wide.items()]
            ok = int(facts.aof and facts.aof_ok)
            found.append(gauge("dueline_store_aof_ok", "1: its append-only file works.", {(): ok}, merge=Merge.MIN))
        if status is not None:
            found.append(_counter_max("dueline_store_restarts", "Restarts of the embedded store.", status.restarts))
            text = "Bytes of the embedded store's data whose loss an operator accepted."
            found.append(_counter_max("dueline_store_lost_bytes", text, status.lost_bytes))
            if status.free_bytes is not None:
                text = "Free space on the embedded store's disk."
                found.append(gauge("dueline_store_disk_free_bytes", text, {(): status.free_bytes}, merge=Merge.MAX))
        return found

    async def _stored(self) -> list[Family]:
        """Metrics of up to 200 topics, read from the store at most every 5 s."""
        now_s = asyncio.get_running_loop().time()
        until_s, families = self._topics
        if now_s < until_s or not self._asks_store():
            return families
        try:
            async with asyncio.timeout(2.0):
                entries = await self.store.directory.topics(None, "", TOPICS_SHOWN)
                entries = [entry for entry in entries if entry.namespace != INTERNAL_NAMESPACE]
                views = await asyncio.gather(*(self._view(entry.namespace, entry.topic) for entry in entries))
        except (DuelineError, TimeoutError):
            return families
        families = gather.of_topics([view for view in views if view is not None], self.store.now_ms())
        self._topics = (now_s + TOPICS_FRESH_S, families)
        return families

    async def _view(self, namespace: str, topic: str) -> tuple[str, TopicView] | None:
        try:
            return namespace, await self.engine.topic(namespace, topic)
        except DuelineError:
            return None


def _counter_max(name: str, help: str, value: float) -> Family:
    return Family(name, Kind.COUNTER, help, (), Merge.MAX, numbers={(): value})


def camellia_options(settings: Settings) -> CamelliaOptions:
    asked = settings.dialects.camellia
    return CamelliaOptions(**{name: getattr(asked, name) for name in CamelliaOptions.__struct_fields__})


def durability_of(settings: Settings) -> str:
    """The durability level that this server promises."""
    return settings.store.durability or ("fsync" if settings.store.url is None else "standard")


def shown_url(url: str) -> str:
    """A store's address without user, password and options."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix://{parts.path}"
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _ouqiang(settings: Settings) -> OuqiangOptions:
    told = settings.dialects.ouqiang
    return OuqiangOptions(told.namespace, told.hold_ms)


def _youzan(settings: Settings) -> YouzanOptions:
    told = settings.dialects.youzan
    return YouzanOptions(told.namespace, told.ttr_ms, told.empty_pop_success)


def _spring(settings: Settings) -> SpringOptions:
    told = settings.dialects.spring
    return SpringOptions(
        told.namespace, ladder_of(told.retry), told.timeout_ms or None, told.no_instance_limit_ms or None
    )


def _exfe(settings: Settings) -> ExfeOptions:
    told = settings.dialects.exfe
    return ExfeOptions(told.namespace, ladder_of(told.retry), told.timeout_ms, told.concurrency)
