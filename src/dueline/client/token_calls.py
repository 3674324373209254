"""The calls on access tokens, as `calls` has those on jobs and topics. No I/O."""

from __future__ import annotations

from ..api import answers as r
from ..api import token_requests as tr
from .calls import Call, given

CONFIRMED_MS = 3_000  # how long a change of a token may wait for all servers


def create_token(request: tr.CreateToken) -> Call[r.SecretToken]:
    """Not repeatable: only the answer has the token, so a retry would make a second one."""
    return Call("create_token", r.SecretToken, (), request, repeatable=False, wait_ms=CONFIRMED_MS)


def list_tokens(cursor: str | None = None, limit: int | None = None) -> Call[r.TokenPage]:
    return Call("list_tokens", r.TokenPage, (), tr.ListTokens(**given(cursor=cursor, limit=limit)))


def token(id: str) -> Call[r.Token]:
    return Call("get_token", r.Token, (id,))


def rotate_token(id: str, overlap: str | None = None) -> Call[r.SecretToken]:
    """Not repeatable: a retry would end the secret that is still in use."""
    request = tr.RotateToken(overlap=overlap)
    return Call("rotate_token", r.SecretToken, (id,), request, repeatable=False, wait_ms=CONFIRMED_MS)


def revoke_token(id: str) -> Call[r.Token]:
    return Call("revoke_token", r.Token, (id,), wait_ms=CONFIRMED_MS)
