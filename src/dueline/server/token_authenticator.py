"""Checks the tokens of callers, against all tokens in memory (`engine.token_cache`). No I/O.

Every refusal of a token has the same words and takes the same time, whether its id exists or not. A call is refused
with 503 while this process does not know whether its tokens are current.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from ..dialects.http import NotGranted
from ..engine.errors import DuelineError, Unauthorized, Unavailable
from ..engine.token_cache import TokenCache
from ..engine.tokens import NOBODY, Secret, token_hash, token_id
from ..redaction import redacted
from ..rights import ALL, Grant, Right
from .router import Found

NO_TOKEN = "This server needs a token, in the header Authorization: Bearer TOKEN."
NOT_VALID = "The token is not valid. It may be mistyped, revoked or expired."
NOT_CURRENT = "The server cannot check tokens now, because the store does not answer; nothing was done."
NOTHING = Grant(frozenset())  # of a caller whose call needs no right


class TokenAuthenticator:
    """Implements `authentication.Authenticator`. `now_ms` is the store's clock."""

    def __init__(self, cache: TokenCache, now_ms: Callable[[], int]) -> None:
        self._cache = cache
        self._now_ms = now_ms
        self._keyed = hashlib.sha256(secrets.token_bytes(64))  # one block: a copy costs less than a keyed hash

    def admit(self, found: Found, token: str | None, namespace: str | None) -> Grant:
        right = found.route.right
        if right is Right.NONE:
            return NOTHING
        if token is None:
            raise Unauthorized(NO_TOKEN)
        if not self._cache.is_current:
            raise Unavailable(NOT_CURRENT)
        grant = self._grant(token)
        needed = (right,) if isinstance(right, Right) else tuple(dict.fromkeys(right.values()))
        if not any(grant.allows(one) for one in needed):
            which = f"the right {needed[0]}" if len(needed) == 1 else f"one of the rights {', '.join(needed)}"
            raise NotGranted(f"This call needs {which}, which this token does not have.", grant)
        if namespace is not None and not grant.reaches(namespace):
            if namespace == ALL:
                raise NotGranted("This call is about the whole server, so it needs a token for all namespaces.", grant)
            raise NotGranted(f'This token is not valid in the namespace "{redacted(namespace)[:128]}".', grant)
        return grant

    def holds(self, grant: Grant) -> bool:
        cache = self._cache  # asked for every request, so nothing is called that can be read
        token = cache.tokens.get(grant.token_id)
        if token is None or token.generation != grant.generation or cache.clock() >= cache.until_s:
            return grant is NOTHING
        return grant.expires_at_ms is None or self._now_ms() < grant.expires_at_ms

    def refusal(self, grant: Grant) -> DuelineError | None:
        if self.holds(grant):  # nearly always, and it costs less
            return None
        known = self._cache.tokens.get(grant.token_id)
        if known is None or not any(_name(one) == grant.secret for one in known.valid_secrets(self._now_ms())):
            return Unauthorized(NOT_VALID)
        return None if self._cache.is_current else Unavailable(NOT_CURRENT)

    def fingerprint(self, head: bytes) -> bytes:
        digest = self._keyed.copy()
        digest.update(head)
        return digest.digest()

    def login(self, text: str) -> Grant:
        """What someone who logs in with this token may do. Raises Unauthorized, or Unavailable if tokens cannot be
        checked now."""
        if not self._cache.is_current:
            raise Unavailable(NOT_CURRENT)
        return self._grant(text)

    def _grant(self, text: str) -> Grant:
        """What the caller with this token may do. Raises Unauthorized."""
        known, now_ms = self._cache.tokens.get(token_id(text) or "", NOBODY), self._now_ms()
        secret = known.secret(token_hash(text), now_ms)
        if secret is None:
            raise Unauthorized(NOT_VALID)
        ends = [at_ms for at_ms in (known.expires_at_ms, secret.ends_at_ms) if at_ms]
        return Grant(
            rights=frozenset(known.rights),
            namespace=known.namespace,
            topics=known.topics,
            token_id=known.id,
            generation=known.generation,
            name=known.name,
            secret=_name(secret),
            expires_at_ms=min(ends, default=None),
            limits=known.limits,
        )


def _name(secret: Secret) -> str:
    """A name for one of a token's two secrets; it says nothing about the text."""
    return secret.sha256[:8].hex()
