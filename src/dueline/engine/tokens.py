"""Access tokens: what a token is, who may make which one, and how a change comes into force everywhere.

    dl_<id>_<secret>    the text of a token. It is shown once; the store has only its SHA-256

A change is one write (`token_store`). Its call returns when no server can follow the token's old state any more: every
server has confirmed the new generation, or has had no chance to renew its lease since (`token_cache`). So after a
revocation has returned, no server accepts the token, not even one that was stopped and continues.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from ..bounds import MAX_PATTERNS
from ..redaction import redacted
from ..rights import Grant, Right, TokenLimits
from .errors import (
    AlreadyDone,
    Forbidden,
    InvalidField,
    NotFound,
    TooManyTokens,
    Unavailable,
    UnknownOutcome,
    VersionMismatch,
)
from .limits import LAST_MS, check_name
from .store import Store
from .timer import Timer
from .token_store import TokenEntry

LEASE_S = 2.0  # a server believes its tokens for this long after a beat
MARGIN_S = 0.2  # for clocks that do not run at the same speed
RETAIN_MS = 30 * 86_400_000  # revoked and expired tokens are listed for this long
OVERLAP_MS = 3_600_000  # the old secret of a rotated token stays valid for this long
MAX_OVERLAP_MS = 30 * 86_400_000
WAITS_S = (0.002, 0.05)  # the first and the longest pause between two looks at the servers
EXPIRED_MS = 60_000  # a token that expired this long ago may be removed to make room
MAX_OF_NAMESPACE = 1_000  # tokens, if they are made by callers of that namespace: others need room, too
TRIES = 20  # for a token that others change at the same time

_TEXT = re.compile(r"dl_([0-9a-f]{12})_[A-Za-z0-9_-]{43}", re.ASCII)


class Secret(msgspec.Struct, frozen=True, array_like=True):
    """The SHA-256 of a token's text. `ends_at_ms`: from when on it is no longer valid, because the token was rotated;
    0: it ends with the token."""

    sha256: bytes
    ends_at_ms: int = 0

    def __repr__(self) -> str:
        return f"Secret(ends_at_ms={self.ends_at_ms})"


_NOBODY = Secret(bytes(32))  # no text has this hash


class Token(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A token. `namespace` None: it is for all of them. `topics` are patterns. `secrets`: the newest first, at most
    two."""

    id: str
    name: str
    rights: tuple[Right, ...]
    namespace: str | None
    topics: tuple[str, ...]
    created_at_ms: int
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None
    secrets: tuple[Secret, ...] = ()
    limits: TokenLimits | None = None
    generation: int = 0  # of its last change; not part of the stored data

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def is_active(self, now_ms: int) -> bool:
        return self.revoked_at_ms is None and not self.is_expired(now_ms)

    def valid_secrets(self, now_ms: int) -> tuple[Secret, ...]:
        """The secrets that are valid now; none if the token is not active."""
        if not self.is_active(now_ms):
            return ()
        return tuple(one for one in self.secrets if one.ends_at_ms == 0 or one.ends_at_ms > now_ms)

    def secret(self, sha256: bytes, now_ms: int) -> Secret | None:
        """The valid secret with this hash. Always compares two hashes, so that the time does
        not show how many there are."""
        found = None
        for one in (*self.valid_secrets(now_ms), _NOBODY, _NOBODY)[:2]:
            if hmac.compare_digest(one.sha256, sha256):
                found = one
        return found


NOBODY = Token(id="", name="", rights=(), namespace=None, topics=(), created_at_ms=0)
"""Stands for every token that does not exist, so that looking for one takes as long as for any other."""


class TokenSpec(msgspec.Struct, frozen=True):
    """A token to create. `expires_at_ms` None: when the creator's does."""

    name: str
    rights: tuple[Right, ...]
    namespace: str | None
    topics: tuple[str, ...] = ("*",)
    expires_at_ms: int | None = None
    limits: TokenLimits | None = None


class NewToken(msgspec.Struct, frozen=True):
    """A token with its text, which nobody can read again."""

    token: Token
    text: str

    def __repr__(self) -> str:
        return f"NewToken({self.token.id})"


def token_id(text: str) -> str | None:
    """The id in the text of a token; None if it is not one."""
    match = _TEXT.fullmatch(text)
    return None if match is None else match[1]


def token_hash(text: str) -> bytes:
    """What the store keeps of the text of a token."""
    return hashlib.sha256(text.encode()).digest()


def read_token(entry: TokenEntry) -> Token:
    return replace(_decode(entry.data), generation=entry.generation)


_decode = msgspec.msgpack.Decoder(Token).decode
_encode = msgspec.msgpack.Encoder().encode


def _entry(token: Token) -> TokenEntry:
    """What to write in place of the token's generation."""
    ends = [at_ms + RETAIN_MS for at_ms in (token.expires_at_ms, token.revoked_at_ms) if at_ms is not None]
    return TokenEntry(token.id, token.generation, min(ends, default=0), _encode(replace(token, generation=0)))


class Tokens:
    """Makes, shows, rotates and revokes the tokens of a store. `caller`: who asks. A caller that is bound to a
    namespace neither sees nor changes the tokens of others."""

    def __init__(self, store: Store, timer: Timer) -> None:
        self._store = store
        self._timer = timer
        self._making = asyncio.Lock()  # so that those made at the same time are counted
        self.now_ms = store.now_ms

    async def make(self, spec: TokenSpec, caller: Grant) -> NewToken:
        now_ms = self.now_ms()
        _check_spec(spec, now_ms)
        spec = await self._allowed(spec, caller)
        while True:
            id = secrets.token_hex(6)
            text = _new_text(id)
            token = Token(
                id=id,
                name=spec.name,
                rights=tuple(right for right in Right if right in spec.rights),
                namespace=spec.namespace,
                topics=tuple(dict.fromkeys(spec.topics)),
                created_at_ms=now_ms,
                expires_at_ms=spec.expires_at_ms,
                secrets=(Secret(token_hash(text)),),
                limits=spec.limits,
            )
            generation = await self._put_new(token, caller)
            if generation:  # otherwise the id is taken
                await self._in_force(generation)
                return NewToken(replace(token, generation=generation), text)

    async def get(self, id: str, caller: Grant) -> Token:
        """Raises NotFound."""
        _check_caller(caller)
        entry = await self._store.tokens.get(id) if token_id(f"dl_{id}_{'A' * 43}") else None
        token = None if entry is None else read_token(entry)
        if token is None or not _sees(caller, token):
            raise NotFound("there is no such token")
        return token

    async def list(self, caller: Grant, after: int, limit: int) -> tuple[list[Token], int | None]:
        """Tokens in the order of their last change, and where the next page begins."""
        _check_caller(caller)
        found: list[Token] = []
        start: int | None = after
        while start is not None and len(found) < limit:
            page = await self._store.tokens.changed(start, limit - len(found))
            found += [token for token in map(read_token, page.entries) if _sees(caller, token)]
            start = page.after
        return found, start

    async def rotate(self, id: str, overlap_ms: int, caller: Grant) -> NewToken:
        """Give the token a new secret. The one that it had stays valid for `overlap_ms`, older ones end now."""
        if not 0 <= overlap_ms <= MAX_OVERLAP_MS:
            raise InvalidField("must be at most 30 days", "overlap")
        text = _new_text(id)

        def rotated(token: Token, now_ms: int) -> Token:
            if not token.is_active(now_ms):
                raise AlreadyDone("the token is revoked or has expired")
            new, old = Secret(token_hash(text)), token.secrets[:1] if overlap_ms else ()
            ending = tuple(replace(one, ends_at_ms=now_ms + overlap_ms) for one in old)
            return replace(token, secrets=(new, *ending))

        old = await self.get(id, caller)
        _check_push(old.limits, caller)
        await self._check_expiry(old.expires_at_ms, caller)
        return NewToken(await self._change(id, caller, rotated), text)

    async def revoke(self, id: str, caller: Grant) -> Token:
        """End the token. When this returns, no server accepts it. The call may be repeated."""

        def revoked(token: Token, now_ms: int) -> Token:
            return token if token.revoked_at_ms is not None else replace(token, revoked_at_ms=now_ms, secrets=())

        return await self._change(id, caller, revoked)

    async def _change(self, id: str, caller: Grant, change: Callable[[Token, int], Token]) -> Token:
        for _ in range(TRIES):
            old = await self.get(id, caller)
            new = change(old, self.now_ms())
            generation = old.generation if new == old else await self._store.tokens.put(_entry(new))
            if generation:
                await self._in_force(generation)
                return replace(new, generation=generation)
        raise VersionMismatch("other processes keep changing this token; nothing was done")

    async def _put_new(self, token: Token, caller: Grant) -> int:
        """Write a new token. If there are too many, the one that expired first is removed. Raises TooManyTokens."""
        async with self._making:
            if caller.namespace is not None:
                own = [entry for entry in await self._entries() if read_token(entry).namespace == caller.namespace]
                if len(own) >= MAX_OF_NAMESPACE and not await self._remove_expired(own):
                    raise TooManyTokens(
                        f'The namespace "{caller.namespace}" has {MAX_OF_NAMESPACE:,} tokens already. '
                        "Revoked ones are removed 30 days later."
                    )
            try:
                return await self._store.tokens.put(_entry(token))
            except TooManyTokens:
                if not await self._remove_expired(await self._entries()):
                    raise
            return await self._store.tokens.put(_entry(token))

    async def _entries(self) -> list[TokenEntry]:
        found: list[TokenEntry] = []
        start: int | None = 0
        while start is not None:
            page = await self._store.tokens.changed(start)
            found += page.entries
            start = page.after
        return found

    async def _remove_expired(self, entries: list[TokenEntry]) -> bool:
        """Remove the token that expired first. False: none has expired. Revoked tokens stay, because a server that
        was suspended meanwhile must still learn of the revocation."""
        before_ms = self.now_ms() - EXPIRED_MS
        expired = [entry for entry in entries if read_token(entry).is_expired(before_ms)]
        if not expired:
            return False
        first = min(expired, key=lambda entry: entry.remove_at_ms)
        await self._store.tokens.put(replace(first, remove_at_ms=1))
        return True

    async def _in_force(self, generation: int) -> None:
        """Wait until every server has this generation, or believes no older one."""
        until_s = self._timer.time() + LEASE_S + MARGIN_S
        pause_s, longest_s = WAITS_S
        try:
            while behind := await self._store.tokens.behind(generation):
                if self._timer.time() >= until_s:
                    for server in behind:  # it has no lease, and registers again when it beats
                        await self._store.tokens.leave(server, generation)
                    continue
                over = asyncio.Event()
                self._timer.call_later(pause_s, over.set)
                await over.wait()
                pause_s = min(pause_s * 2, longest_s)
        except Unavailable as error:
            raise UnknownOutcome(
                f"the token was changed, but not every server has confirmed it: {error.message}"
            ) from None

    async def _allowed(self, spec: TokenSpec, caller: Grant) -> TokenSpec:
        """The spec, if the caller may do all that it asks for."""
        _check_caller(caller)
        missing = [right for right in spec.rights if not caller.allows(right)]
        if missing:
            raise Forbidden(f"this token does not have the right {missing[0]}, so it cannot grant it", "rights")
        if caller.namespace is not None and spec.namespace != caller.namespace:
            raise Forbidden(f'this token may create tokens only for the namespace "{caller.namespace}"', "namespace")
        limits = spec.limits
        if (own := caller.push_allow) is not None and (limits is None or limits.push_allow is None):
            limits = replace(limits or TokenLimits(), push_allow=own)
        _check_push(limits, caller)
        expires_at_ms = await self._check_expiry(spec.expires_at_ms, caller, inherits=True)
        return replace(spec, expires_at_ms=expires_at_ms, limits=limits)

    async def _check_expiry(self, expires_at_ms: int | None, caller: Grant, inherits: bool = False) -> int | None:
        """A secret that the caller gets must not outlive the caller's own token. `inherits`: None means its expiry."""
        own = None if not caller.token_id else (await self.get(caller.token_id, caller)).expires_at_ms
        if own is None:
            return expires_at_ms
        if expires_at_ms is None and inherits:
            return own
        if expires_at_ms is None or expires_at_ms > own:
            raise Forbidden("this token may not create a token that expires later than itself", "expires_at_ms")
        return expires_at_ms


def _new_text(id: str) -> str:
    return f"dl_{id}_{secrets.token_urlsafe(32)}"


def _sees(caller: Grant, token: Token) -> bool:
    return caller.namespace is None or token.namespace == caller.namespace


def _check_caller(caller: Grant) -> None:
    if not caller.covers_all:
        raise Forbidden('this token is valid for some topics only; managing tokens needs one for every topic ("*")')


def _check_push(limits: TokenLimits | None, caller: Grant) -> None:
    """A secret that the caller gets must not direct pushes where the caller may not."""
    if caller.push_allow is None:
        return
    given = None if limits is None else limits.push_allow
    if given is None or not set(given) <= set(caller.push_allow):
        raise Forbidden("this token may grant only entries of its own push_allow", "push_allow")


def _check_spec(spec: TokenSpec, now_ms: int) -> None:
    check_name(spec.name, "name")
    if redacted(spec.name) != spec.name:  # it is shown in the audit log
        raise InvalidField("must not contain a secret, such as the text of a token", "name")
    if not spec.rights or Right.NONE in spec.rights:
        raise InvalidField("must name at least one right", "rights")
    if not 1 <= len(spec.topics) <= MAX_PATTERNS:
        raise InvalidField(f"must have 1 to {MAX_PATTERNS} patterns", "topics")
    for place, pattern in enumerate(spec.topics):
        check_name(pattern, f"topics[{place}]")
    if spec.expires_at_ms is not None and not now_ms < spec.expires_at_ms <= LAST_MS:
        raise InvalidField("must be in the future", "expires_at_ms")
