"""One method per operation on access tokens: from a request struct to a reply. The rules are in `engine.tokens`."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, structs

from ...api import answers as a
from ...api import token_requests as tr
from ...api.reply import Reply
from ...engine.errors import InvalidField
from ...engine.policy import duration_ms
from ...engine.tokens import OVERLAP_MS, NewToken, Token, Tokens, TokenSpec
from ...rights import Right, TokenLimits
from ..contract import PushRules
from . import decode, encode
from .push_rules import named
from .wire import Caller, plain_namespace


class TokenHandlers:
    """The handlers of the group "Tokens" in `api.OPERATIONS`. Each method is named after its operation."""

    def __init__(self, tokens: Tokens, rules: PushRules) -> None:
        self._tokens = tokens
        self._rules = rules

    async def create_token(self, caller: Caller, request: tr.CreateToken) -> Reply:
        namespace = caller.namespace if request.namespace is UNSET else request.namespace
        if namespace is not None:
            plain_namespace(namespace)
        if request.push_allow is not None:
            named("push_allow", self._rules.allow_list, request.push_allow)
        spec = TokenSpec(
            name=request.name,
            rights=tuple(map(Right, request.rights)),
            namespace=namespace,
            topics=("*",) if request.topics is None else tuple(request.topics),
            expires_at_ms=self._expiry(request),
            limits=_limits(request),
        )
        return Reply(self._secret_view(await self._tokens.make(spec, caller.grant)), 201)

    async def list_tokens(self, caller: Caller, request: tr.ListTokens) -> Reply:
        after = decode.cursor_bytes(request.cursor)
        if after and (len(after) > 6 or not any(after)):
            raise InvalidField("is not a cursor from an earlier answer", "cursor")
        found, start = await self._tokens.list(caller.grant, int.from_bytes(after, "big"), request.limit)
        next_cursor = None if start is None else encode.cursor_text(start.to_bytes(6, "big"))
        return Reply(a.TokenPage(tuple(map(self._view, found)), next_cursor))

    async def get_token(self, caller: Caller, _: object, token: str) -> Reply:
        return Reply(self._view(await self._tokens.get(token, caller.grant)))

    async def rotate_token(self, caller: Caller, request: tr.RotateToken, token: str) -> Reply:
        overlap_ms = OVERLAP_MS if request.overlap is None else duration_ms(request.overlap, "overlap")
        return Reply(self._secret_view(await self._tokens.rotate(token, overlap_ms, caller.grant)))

    async def revoke_token(self, caller: Caller, _: object, token: str) -> Reply:
        return Reply(self._view(await self._tokens.revoke(token, caller.grant)))

    def _expiry(self, request: tr.CreateToken) -> int | None:
        if request.expires is None:
            return request.expires_at_ms
        if request.expires_at_ms is not None:
            raise InvalidField("give expires or expires_at_ms, not both", "expires_at_ms")
        return self._tokens.now_ms() + duration_ms(request.expires, "expires")

    def _view(self, token: Token) -> a.Token:
        now_ms = self._tokens.now_ms()
        ending = [one.ends_at_ms for one in token.secrets if one.ends_at_ms > now_ms]
        limits = token.limits or TokenLimits()
        return a.Token(
            id=token.id,
            name=token.name,
            state=_state(token, now_ms),
            rights=token.rights,
            namespace=token.namespace,
            topics=token.topics,
            created_at_ms=token.created_at_ms,
            expires_at_ms=token.expires_at_ms,
            revoked_at_ms=token.revoked_at_ms,
            old_secret_until_ms=max(ending, default=None),
            requests_per_s=limits.requests_per_s,
            max_connections=limits.max_connections,
            max_polls=limits.max_polls,
            max_pending_jobs=limits.max_pending_jobs,
            max_queued_jobs=limits.max_queued_jobs,
            look_ups_per_s=limits.look_ups_per_s,
            push_allow=limits.push_allow,
        )

    def _secret_view(self, made: NewToken) -> a.SecretToken:
        return a.SecretToken(**structs.asdict(self._view(made.token)), token=made.text)


def _limits(request: tr.CreateToken) -> TokenLimits | None:
    limits = TokenLimits(
        requests_per_s=request.requests_per_s,
        max_connections=request.max_connections,
        max_polls=request.max_polls,
        max_pending_jobs=request.max_pending_jobs,
        max_queued_jobs=request.max_queued_jobs,
        look_ups_per_s=request.look_ups_per_s,
        push_allow=None if request.push_allow is None else tuple(request.push_allow),
    )
    return None if limits == TokenLimits() else limits


def _state(token: Token, now_ms: int) -> Literal["active", "expired", "revoked"]:
    if token.revoked_at_ms is not None:
        return "revoked"
    return "expired" if token.is_expired(now_ms) else "active"
