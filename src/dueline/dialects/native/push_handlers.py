"""One method per operation on push targets: from a request struct to a reply, through the engine.

A PUT replaces the whole target. A GET masks secrets and credentials in headers. A masked value that is sent back keeps
the stored one, so a target can be read, changed and written without knowing its secrets. If the address changes, they
must be given in full. Otherwise anyone who may write a target could have its secrets sent to their own server.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from msgspec import UNSET

from ...api import answers as a
from ...api import push_requests as pr
from ...api.reply import Reply
from ...engine.commands import TopicView
from ...engine.engine import Engine
from ...engine.errors import InvalidField, MissingField, NotFound
from ...engine.limits import check_name
from ...engine.on_dead import ON_DEAD_TARGET, ON_DEAD_TOPIC
from ...engine.push_log import Attempt, TargetState
from ...engine.push_target import Breaker, PushTarget, is_credential
from ..contract import PushRules
from . import decode, encode
from .push_rules import check_callable, named
from .wire import Caller, plain_name

HTTP = "http"  # the courier of targets set through this API; other couriers belong to the part that set them
IN_FULL = "is masked: give it in full, because the address of the target changes"
_NEW = PushTarget()


class PushHandlers:
    """The handlers of the group "Push" in `api.OPERATIONS`. Each method is named after its operation."""

    def __init__(self, engine: Engine, rules: PushRules) -> None:
        self._engine = engine
        self._rules = rules

    async def get_push(self, caller: Caller, _: object, topic: str) -> Reply:
        namespace = caller.namespace
        return Reply(await self._view(namespace, topic, await self._engine.push_target(namespace, topic)))

    async def put_push(self, caller: Caller, request: pr.PutPush, topic: str) -> Reply:
        namespace = caller.namespace
        plain_name(topic, "topic")
        try:
            old = await self._engine.push_target(namespace, topic)
        except NotFound:
            old = None
        if old is None and topic == ON_DEAD_TOPIC:
            old = ON_DEAD_TARGET  # the server's own target, even before the topic has a job
        target = self._target(request, caller, old)
        target, new = await self._engine.set_push(namespace, topic, target)
        return Reply(await self._view(namespace, topic, target), 201 if new else 200)

    async def remove_push(self, caller: Caller, _: object, topic: str) -> Reply:
        namespace = caller.namespace
        if (await self._engine.push_target(namespace, topic)).courier != HTTP:
            raise InvalidField("the server needs this target, so it cannot be removed; pause it instead", "topic")
        await self._engine.remove_push(namespace, topic)
        return Reply(a.PushRemoved(topic))

    async def pause_push(self, caller: Caller, _: object, topic: str) -> Reply:
        await self._engine.pause_push(caller.namespace, topic)
        return Reply(a.Paused(topic, True, None))

    async def resume_push(self, caller: Caller, _: object, topic: str) -> Reply:
        await self._engine.resume_push(caller.namespace, topic)
        return Reply(a.Paused(topic, False, None))

    async def list_attempts(self, caller: Caller, request: pr.ListAttempts, topic: str) -> Reply:
        namespace = caller.namespace
        if request.id is not None:
            check_name(request.id, "id")
        cursor = decode.cursor_bytes(request.cursor)
        await self._engine.push_target(namespace, topic)
        found, after = await self._engine.store.pushes.attempts(namespace, topic, request.id, cursor, request.limit)
        return Reply(a.AttemptPage(tuple(map(_attempt, found)), encode.cursor_text(after)))

    # -- from the wire

    def _target(self, request: pr.PutPush, caller: Caller, old: PushTarget | None) -> PushTarget:
        """The requested target, with complete secrets, and with its address and headers checked."""
        courier = HTTP if old is None else old.courier
        self._check_address(request, caller, courier)
        moved = old is not None and _address(request.url, request.service) != _address(old.url, old.service)
        headers = self._headers(request.headers or {}, old, moved)
        breaker = request.breaker
        return PushTarget(
            url=request.url,
            service=request.service,
            method=request.method or _NEW.method,
            headers=headers,
            timeout_ms=request.timeout_ms or (_NEW if old is None or courier == HTTP else old).timeout_ms,
            concurrency=request.concurrency or _NEW.concurrency,
            rate_per_s=request.rate_per_s or 0.0,
            success=tuple(request.success or ()),
            retry=None if request.retry is None else decode.retry(request.retry),
            breaker=_NEW.breaker if breaker is UNSET else breaker and Breaker(breaker.failures, breaker.open_ms),
            secrets=self._secrets(request.secrets or [], old, moved),
            paused=request.paused is True,
            courier=courier,
        )

    def _check_address(self, request: pr.PutPush, caller: Caller, courier: str) -> None:
        if courier != HTTP:
            if request.url is not None or request.service is not None:
                field = "url" if request.url is not None else "service"
                raise InvalidField("this topic's jobs carry their own URL", field)
            return
        if request.url is None and request.service is None:
            raise MissingField("give url or service", "url")
        if request.url is not None and request.service is not None:
            raise InvalidField("give url or service, not both", "service")
        if request.url is not None:
            check_callable(self._rules, request.url, caller, "url")
        if request.service is not None:
            named("service", lambda service: self._rules.service(service, caller.grant), request.service)

    def _headers(self, new: dict[str, str], old: PushTarget | None, moved: bool) -> tuple[tuple[str, str], ...]:
        known = {name.lower(): value for name, value in (() if old is None else old.headers)}
        headers: list[tuple[str, str]] = []
        for name, value in new.items():
            there = known.get(name.lower())
            if is_credential(name) and there is not None and value == _masked(there):
                if moved:
                    raise InvalidField(IN_FULL, f"headers.{name}")
                value = there
            headers.append((name, value))
        named("headers", self._rules.headers, tuple(headers))
        return tuple(headers)

    def _secrets(self, new: list[str], old: PushTarget | None, moved: bool) -> tuple[str, ...]:
        left = [] if old is None else list(old.secrets)
        secrets: list[str] = []
        for place, secret in enumerate(new):
            shown = next((known for known in left if self._rules.mask(known) == secret), None)
            if shown is not None:
                if moved:
                    raise InvalidField(IN_FULL, f"secrets[{place}]")
                left.remove(shown)
                secret = shown
            named(f"secrets[{place}]", self._rules.secret, secret)
            if secret in secrets:
                raise InvalidField("is given twice", f"secrets[{place}]")
            secrets.append(secret)
        return tuple(secrets)

    # -- to the wire

    async def _view(self, namespace: str, topic: str, target: PushTarget) -> a.Push:
        target_state = await self._engine.store.pushes.state(namespace, topic)
        view = await self._engine.topic(namespace, topic)
        breaker = target.breaker
        return a.Push(
            url=target.url,
            service=target.service,
            method=target.method,
            headers={name: _masked(value) if is_credential(name) else value for name, value in target.headers},
            timeout_ms=target.timeout_ms,
            concurrency=target.concurrency,
            rate_per_s=target.rate_per_s or None,
            success=tuple(target.success) or None,
            retry=encode.retry_view(target.retry),
            breaker=None if breaker is None else {"failures": breaker.failures, "open_ms": breaker.open_ms},
            secrets=tuple(self._rules.mask(secret) for secret in target.secrets),
            paused=target.paused,
            state=state_of(target, target_state, view, self._engine.store.now_ms()),
            in_flight=view.leased,
            last_error=target_state.last_error,
        )


def state_of(target: PushTarget, target_state: TargetState, view: TopicView, now_ms: int) -> a.TargetState:
    """What happens to a due job of this target now. The target of a paused topic is shown as paused."""
    if target.paused or view.paused:
        return "paused"
    if target.breaker is None or target_state.failures < target.breaker.failures or not target_state.open_until_ms:
        return "ok"  # without open_until_ms the jobs go to many hosts, each with a breaker of its own
    return "open" if target_state.open_until_ms > now_ms else "half_open"


def _address(url: str | None, service: str | None) -> tuple[str, str, str | None]:
    """The part of an address that must not change for masked secrets to be kept."""
    parts = urlsplit(url or "")
    return parts.scheme.lower(), parts.netloc.lower(), service


def _attempt(one: Attempt) -> a.Attempt:
    return a.Attempt(one.id, one.attempt, one.at_ms, one.status or None, one.duration_ms, one.error, one.excerpt)


def _masked(value: str) -> str:
    """A masked credential: recognizable by its last characters, but only if it is long enough to stay secret."""
    return f"...{value[-4:]}" if len(value) >= 16 else "..."
