"""The client methods on access tokens: tokens token create_token rotate_token revoke_token. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from ..api import answers as r
from ..api.token_requests import CreateToken, TokenRight
from ..durations import duration_text
from . import token_calls as calls
from .calls import Call
from .method import Pages, method, pages
from .times import Duration, duration_ms


class TokenApi:
    """The methods on tokens that Client and AsyncClient share. They need the right `admin`."""

    @method
    def create_token(
        self,
        name: str,
        rights: Sequence[TokenRight],
        *,
        topics: Sequence[str] | None = None,
        expires: Duration | None = None,
        namespace: str | None = None,
        requests_per_s: float | None = None,
        max_connections: int | None = None,
        max_polls: int | None = None,
        max_pending_jobs: int | None = None,
        max_queued_jobs: int | None = None,
        look_ups_per_s: float | None = None,
        push_allow: Sequence[str] | None = None,
    ) -> Call[r.SecretToken]:
        """Make an access token. The `token` of the result is its text; nobody can read it again.

        `topics` are patterns; default all. `expires`: after this time; default never. `namespace`: "*" for all; default
        that of this client. The others are limits (docs/limits.md); default none. This is not retried after an unknown
        outcome."""
        return calls.create_token(
            CreateToken(
                name=name,
                rights=list(rights),
                namespace=UNSET if namespace is None else None if namespace == "*" else namespace,
                topics=None if topics is None else list(topics),
                expires=None if expires is None else duration_text(duration_ms(expires, "expires")),
                requests_per_s=requests_per_s,
                max_connections=max_connections,
                max_polls=max_polls,
                max_pending_jobs=max_pending_jobs,
                max_queued_jobs=max_queued_jobs,
                look_ups_per_s=look_ups_per_s,
                push_allow=None if push_allow is None else list(push_allow),
            )
        )

    @pages
    def tokens(self, page: int = 500) -> Pages[r.Token]:
        """All access tokens that this client may see, in the order of their last change."""
        return Pages(lambda cursor: calls.list_tokens(cursor, page), _tokens)

    @method
    def token(self, id: str) -> Call[r.Token]:
        """An access token, without its text. Raises NotFound."""
        return calls.token(id)

    @method
    def rotate_token(self, id: str, overlap: Duration | None = None) -> Call[r.SecretToken]:
        """Give an access token a new text. The old one stays valid for `overlap`, by default one hour. This is not
        retried after an unknown outcome."""
        return calls.rotate_token(id, None if overlap is None else duration_text(duration_ms(overlap, "overlap")))

    @method
    def revoke_token(self, id: str) -> Call[r.Token]:
        """Revoke an access token. When this returns, no server accepts it."""
        return calls.revoke_token(id)


def _tokens(page: r.TokenPage) -> Sequence[r.Token]:
    return page.tokens
