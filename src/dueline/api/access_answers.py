"""Answers about access: the audit log and tokens."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from .schema_hints import one_of


class AuditEntry(msgspec.Struct, frozen=True):
    """One call that changed something, or tried to. `who`: the id of the caller's token; "": the server checks no
    tokens; "local": a program on the store itself. `action`: the name of the operation. `code` null: it succeeded."""

    id: str
    at_ms: int
    who: str
    who_name: str | None
    address: str | None
    namespace: str
    action: str
    topic: str | None
    details: dict[str, Any]
    status: int
    code: str | None
    server: str


class AuditPage(msgspec.Struct, frozen=True):
    """One page of the audit log, newest first. Even an empty page may have a cursor; null = this is the last page."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None = None


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An access token. `namespace` null: all of them. `old_secret_until_ms`: it was rotated, and its old text is valid
    until then."""

    id: str
    name: str
    state: Annotated[str, one_of("active", "expired", "revoked")]
    rights: tuple[str, ...]
    namespace: str | None = None
    topics: tuple[str, ...] = ()
    created_at_ms: int
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None
    old_secret_until_ms: int | None = None
    requests_per_s: float | None = None
    max_connections: int | None = None
    max_polls: int | None = None
    max_pending_jobs: int | None = None
    max_queued_jobs: int | None = None
    look_ups_per_s: float | None = None
    push_allow: tuple[str, ...] | None = None


class SecretToken(Token, frozen=True, kw_only=True):
    """A new or rotated access token. `token` is its text, which is shown only here."""

    token: str

    def __repr__(self) -> str:
        return f"SecretToken(id={self.id!r}, name={self.name!r})"


class TokenPage(msgspec.Struct, frozen=True):
    """One page of tokens, in the order of their last change."""

    tokens: tuple[Token, ...]
    next_cursor: str | None = None
