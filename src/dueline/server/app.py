"""The wiring of one server process: the only place where store, engine, dialects, front and telemetry meet.

listen   the front accepts connections. /healthz and /readyz work at once; every other call gets 503 "loading" until
         `open` is done. Polls get it after a second, because polling clients retry without a pause
open     waits for the store, checks it, connects to it and starts the engine
announce_stop   makes the process not ready and closes each connection after its next answer; calls are still served
stop     answers parked polls with an empty result, finishes running calls, closes connections, stops engine and store
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from .._version import __version__
from ..api.answers import Info
from ..config.reach import parse_address
from ..config.settings import Settings, namespaces_with_own_ids
from ..dialects.contract import Dialect, DialectContext
from ..dialects.http import Request, Route, SpaceOwner
from ..dialects.table import DIALECTS
from ..engine.commands import TopicView
from ..engine.engine import Engine
from ..engine.errors import DuelineError, Loading, QuotaExceeded, Unavailable
from ..engine.limits import INTERNAL_NAMESPACE
from ..engine.token_cache import TokenCache
from ..engine.tokens import LEASE_S
from ..event_log import EventLog
from ..metrics import table
from ..metrics.metric import Samples
from ..runtime.access import StoreAccess
from ..runtime.facts import store_words
from ..runtime.locations import StoreLocation
from ..runtime.runtime import Runtime, process_name
from ..runtime.watch import StoreWatch
from ..store.valkey.store import WrongStore
from ..store_address import parse_store_url
from ..telemetry import samples
from ..telemetry.call_metrics import CallMetrics, HttpMetrics
from ..telemetry.notices import Notices
from ..telemetry.push_notices import PushNotices
from ..telemetry.siblings import Siblings
from .authentication import Authenticator, OpenAccess
from .browser import BrowserRules
from .certificate import Certificate
from .dashboard import Dashboard, Login
from .dialect_callers import DialectCallers
from .front import Front, FrontLimits
from .health import Health, Phase
from .listeners import addresses
from .pending_jobs import PendingJobs
from .push import EurekaMissing, Push
from .quotas import Quotas
from .router import Router
from .send_notices import SendNotices
from .start_checks import StartRefused
from .store_metrics import shards_of, store_samples
from .system import SystemRoutes
from .token_authenticator import TokenAuthenticator

STORE_WAIT_S = 30.0  # for an external store at the start
STORE_LATE_S = 0.8  # after this long without an answer, a warning is logged
TOPICS_SHOWN = 200
TOPICS_FRESH_S = 5.0
MAX_PUSH_DRAIN_S = 6.0  # for running calls to push targets, so that the whole shutdown takes at most 10 s
LOADING = "the server is starting; nothing was done"
CALM_S = 1.0  # how long a poll is held while the server is starting


class App:
    """A server with the store at `location`. `folder` holds the sockets over which the worker processes of one server
    exchange metrics. `token_lease_s` is for tests.

    The attribute `recheck` is called when tokens have changed, to end the polls of those that were revoked. It asks the
    fronts; a server that is mounted in another application sets its own."""

    def __init__(
        self,
        settings: Settings,
        location: StoreLocation,
        index: int = 0,
        folder: Path | None = None,
        token_lease_s: float = LEASE_S,
    ) -> None:
        self.settings = settings
        self._index = index
        self.durability = location.durability
        self.http = HttpMetrics()
        self.calls = CallMetrics()
        namespace_ids = namespaces_with_own_ids(settings.dialects)
        self._notices = Notices("dueline.server")
        self.quotas = Quotas(settings.namespaces, refused=self._over_limit)
        self.access = StoreAccess(
            location,
            self._pause,
            prefix=settings.store.prefix,
            limits=settings.limits,
            namespace_ids=namespace_ids,
            on_call=self.calls.called,
            queue_of=self.quotas.queue_of,
        )
        self.store = self.access.store
        self.engine = Engine(
            self.store,
            settings.limits,
            namespace_ids=namespace_ids,
            idle_ms=settings.topics.idle_ms,
            process_name=process_name(),
            max_audit_entries=settings.audit.max_entries,
        )
        self._runtime = Runtime(self.access, self.engine)
        self.engine.audit.on_loss = self._audit_lost
        self._sends = SendNotices(self.engine, self._notices)
        self.engine.watch_sends(self._sends)
        self._pending = PendingJobs(
            self.engine,
            self.quotas.max_pending_jobs,
            self.quotas.refuse_pending,
        )
        has_tokens = settings.server.auth == "tokens"
        if has_tokens or any(row.max_pending_jobs is not None for row in settings.namespaces.values()):
            self.engine.limit_sends(self._pending)
            self.quotas.pending = self._pending.in_use
        self.pushed = PushNotices(Notices("dueline.push"))
        self.push = Push(
            settings,
            self.engine,
            self.pushed,
            self.pushed.refused_at_send,
            self.quotas.look_up,
            self.quotas.choose_name,
        )
        self._watch = StoreWatch(self.access)
        self.health = Health(self._watch)
        self.certificate = Certificate.of(settings.server.tls)
        self.auth: Authenticator = OpenAccess(self._token_ignored)
        self.tokens: TokenCache | None = None
        self._login: Login | None = None
        if has_tokens:
            self._check_tokens(token_lease_s)
        self.recheck: Callable[[], None] = self._recheck_fronts
        self._siblings = Siblings(folder, index, self.snapshot, self._counts)
        self._topics: tuple[float, list[Samples]] = (0.0, [])
        self._always_open: frozenset[str] = frozenset()
        self._started = asyncio.Event()  # set once the start has succeeded or failed
        self._dialects = self._built_dialects(folder)
        self._enabled = [self._dialects[name] for name in settings.served()]
        for dialect in self._dialects.values():
            self.push.couriers.update(dialect.couriers())
        self._callers = DialectCallers(settings, self._dialects, self._notices)
        self.auth = self._callers.authenticator(self.auth)
        self.fronts = [self._front(address, names) for address, names in addresses(settings).items()]
        self.quotas.addresses = [front.addresses for front in self.fronts]
        self._log = EventLog("dueline.server")

    def _check_tokens(self, lease_s: float) -> None:
        self.tokens = TokenCache(self.store, lease_s=lease_s)
        self.auth = checked = TokenAuthenticator(self.tokens, self.store.now_ms)
        self._login = checked.login
        self.tokens.changed = self._tokens_changed

    def _built_dialects(self, folder: Path | None) -> dict[str, Dialect]:
        """All dialects of the table, by name, even if they are switched off."""
        context = DialectContext(
            engine=self.engine,
            info=self.info,
            push=self.push.rules,
            resolver=self.push.resolver,
            ready=lambda: not self.health.reasons(),
            store_answers=self._asks_store,
            samples=self._merged,
            folder=folder,
        )
        sections = self.settings.dialects.by_name()
        return {spec.name: spec.build(sections[spec.name], context) for spec in DIALECTS}

    # --- addresses --------------------------------------------------------------------------------------------------

    def _front(self, address: str, names: Sequence[str]) -> Front:
        """A front for one address. Every address serves health and metrics."""
        is_main = address == self.settings.server.listen
        system = SystemRoutes(__version__, self.health.reasons, self.health.warnings, self.metrics, documents=is_main)
        self._always_open |= {route.name for route in system.routes()}
        pages = [Dashboard(self.settings.server, __version__, self._login)] if is_main else []
        dialects = [self._dialects[name] for name in names]
        alone = dialects[0] if not is_main and len(dialects) == 1 else None
        router = Router(
            [system, *pages, *dialects],
            guard=self._guard,
            owner=alone if isinstance(alone, SpaceOwner) else None,
            audit=self.engine.audit,
            token_places=self._callers.token_places(),
            read_only=self.settings.server.ui_read_only,
        )
        limits = FrontLimits(
            max_body_bytes=self.settings.limits.max_request_bytes,
            max_connections=self.settings.server.max_connections,
            max_connections_per_address=self.settings.server.max_connections_per_address,
            max_unfinished_per_address=self.settings.server.max_unfinished_per_address,
        )
        rules = BrowserRules.of(self.settings.server, loopback=parse_address(address, "listen").loopback)
        tls = None if self.certificate is None else self.certificate.context
        return Front(
            router,
            limits,
            answered=self.http.answered,
            tls=tls,
            browser_rules=rules,
            networks=self._callers.networks(address),
            auth=self.auth,
            quotas=self.quotas,
            hook=self.store.hook,
        )

    def _recheck_fronts(self) -> None:
        for front in self.fronts:
            front.recheck()

    def _tokens_changed(self) -> None:
        self.recheck()

    def _over_limit(self, limit: str, error: QuotaExceeded) -> None:
        self._notices.notice(("limit", error.message), "a limit has refused a call", limit=limit, reason=error.message)

    def _token_ignored(self) -> None:
        self._notices.notice("token", "a token has no effect: this server does not check tokens")

    # --- life -------------------------------------------------------------------------------------------------------

    async def listen(self, listeners: Sequence[socket.socket]) -> None:
        """Accept connections, on one socket per address (server.listeners). Until `open` is done, calls get 503
        "loading". Raises BadCertificate."""
        if self.certificate is not None:
            self.certificate.load()
            await self.certificate.start()
        await self._siblings.start()
        for front, listener in zip(self.fronts, listeners, strict=True):
            await front.start(listener)

    async def open(self) -> None:
        """Start the store if it is embedded, wait for it, check it, connect. Raises StartRefused, FolderInUse or
        EmbeddedError."""
        if self.access.location.tls.warning is not None:
            self._log.warning(self.access.location.tls.warning)
        late = asyncio.get_running_loop().call_later(STORE_LATE_S, self._store_is_late)
        try:
            await self._runtime.start()
        except WrongStore as error:
            raise StartRefused(str(error)) from None
        except Unavailable as error:
            raise StartRefused(f"{error.message} (tried for {STORE_WAIT_S:g} s)") from None
        finally:
            late.cancel()
        if self.tokens is not None:
            await self.tokens.start()
            if self._index == 0:
                self._say_if_no_tokens(self.tokens)
        try:
            await self.push.start()
        except EurekaMissing as error:
            raise StartRefused(str(error)) from None
        for dialect in self._enabled:
            await dialect.start()
        self.health.phase = Phase.SERVING
        self._started.set()
        for front in self.fronts:
            front.router.guard = None  # nothing to guard any more, so no request asks
        await self._watch.start()

    def announce_stop(self) -> None:
        """Become not ready, and close each connection after its next answer. Calls are still served."""
        self.health.phase = Phase.DRAINING
        for front in self.fronts:
            front.close_after_answers()

    async def stop(self, hasten: asyncio.Event) -> None:
        """Drain and stop. `hasten` cuts the wait for running calls short."""
        self.health.phase = Phase.DRAINING
        self._started.set()
        for dialect in self._enabled:
            await dialect.stop()
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
        if self.tokens is not None:
            await self.tokens.stop()
        await self._pending.stop()
        await self._watch.stop()
        await self._runtime.stop()
        await self._siblings.stop()
        if self.certificate is not None:
            await self.certificate.stop()

    def _say_if_no_tokens(self, tokens: TokenCache) -> None:
        """Tell the operator how to make the first token."""
        if tokens.is_current and not tokens.tokens:
            store = self.settings.store
            url = f"embedded:{store.data}" if store.url is None else parse_store_url(store.url).shown
            self._log.warning(
                "there are no tokens, so every call is refused. Create the first one with: "
                f"dueline token create NAME --right admin --all-namespaces --url {url}"
            )

    async def _drain(self, timeout_s: float) -> None:
        await asyncio.gather(*(front.drain(timeout_s) for front in self.fronts))

    def _store_is_late(self) -> None:
        if self.access.location.status is None:  # the supervisor of an embedded store logs its progress
            self._log.warning("the store has not answered yet")

    def _pause(self, error: Unavailable, elapsed_s: float) -> float:
        """How long to wait before the store is tried again. An embedded store is waited for as long as it loads."""
        if self.access.location.status is None and elapsed_s > STORE_WAIT_S:
            raise error
        if self.health.up:  # otherwise the health has logged it
            self._log.warning("the store is not ready yet", error=error.message)
        return min(max(elapsed_s, 0.05), 1.0)

    def _audit_lost(self, error: Exception) -> None:
        self._notices.notice("audit", "an entry of the audit log could not be written", error=str(error))

    def _guard(self, request: Request, route: Route) -> Awaitable[None] | None:
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
            auth=self.settings.server.auth,
            dialects=self.settings.callers(),
            limits_in_use=tuple(self.quotas.in_use()),
            shards=shards_of(self.health, self.access),
            disk_free_bytes=None if self.access.location.status is None else self.access.location.status.free_bytes,
        )

    def store_text(self) -> str:
        """A description of the store, without secrets."""
        kind = "embedded" if self.settings.store.url is None else parse_store_url(self.settings.store.url).shown
        return store_words(kind, self.access.facts)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics of the whole server: this process, its siblings, and the topics in the store."""
        from ..telemetry.exposition import exposition  # with the Prometheus library: see samples.of_process

        merged = await self._merged()
        for dialect in self._enabled:
            merged = await dialect.metrics.page(merged)
        page, content_type = exposition([*merged, *await self._stored()], accept)
        for dialect in self._enabled:
            content_type = dialect.metrics.content_type(accept, content_type)
        return page, content_type

    async def _merged(self) -> list[Samples]:
        return await self._siblings.page()

    def _asks_store(self) -> bool:
        return self.health.phase is not Phase.STARTING and self.health.up

    def snapshot(self) -> list[Samples]:
        """The metrics of this process alone."""
        return [*self._counts(), *samples.of_process()]

    def _counts(self) -> list[Samples]:
        """The metrics of this process, without those of the operating system's process."""
        return [
            samples.of_build("embedded" if self.settings.store.url is None else "external", self.durability),
            *samples.of_engine(self.engine.metrics, self.engine.waiters),
            *self.http.samples(),
            table.HTTP_CONNECTIONS.value(sum(front.connections for front in self.fronts)),
            table.AUDIT_LOST.value(self.engine.audit.lost),
            table.AUDIT_MERGED.value(self.engine.audit.merged),
            table.HTTP_CONNECTIONS_REFUSED.value(self._callers.connections_refused),
            *self.quotas.samples(),
            *(() if self.certificate is None else self.certificate.samples()),
            *self.calls.samples(),
            *self.pushed.samples(),
            *(found for dialect in self._enabled for found in dialect.metrics.snapshot()),
            *store_samples(self.store, self.health, self.access),
        ]

    async def _stored(self) -> list[Samples]:
        """Metrics of up to 200 topics, read from the store at most every 5 s."""
        now_s = asyncio.get_running_loop().time()
        until_s, stored = self._topics
        if now_s < until_s or not self._asks_store():
            return stored
        try:
            async with asyncio.timeout(2.0):
                entries = await self.store.directory.topics(None, "", TOPICS_SHOWN)
                entries = [entry for entry in entries if entry.namespace != INTERNAL_NAMESPACE]
                views = await asyncio.gather(*(self._view(entry.namespace, entry.topic) for entry in entries))
        except (DuelineError, TimeoutError):
            return stored
        stored = samples.of_topics([view for view in views if view is not None], self.store.now_ms())
        self._topics = (now_s + TOPICS_FRESH_S, stored)
        return stored

    async def _view(self, namespace: str, topic: str) -> tuple[str, TopicView] | None:
        try:
            return namespace, await self.engine.topic(namespace, topic, samples.BANDS_MS)
        except DuelineError:
            return None
