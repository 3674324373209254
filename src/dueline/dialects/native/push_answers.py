"""The shapes of answers about push targets: what the encoder writes and what OpenAPI shows. No I/O."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

TargetState = Literal["ok", "open", "half_open", "paused"]


class Breaker(msgspec.Struct, frozen=True):
    failures: int
    open_ms: int


class Push(msgspec.Struct, frozen=True):
    """A push target and its state. Secrets are shown as whsec_...last4; credentials in headers are masked the same way.

    `success` null: every 2xx. `rate_per_s` null: no limit. `breaker` null: none. `in_flight`: leased jobs of the topic.
    """

    url: str | None
    service: str | None
    method: str
    headers: dict[str, str]
    timeout_ms: int | None
    concurrency: int
    rate_per_s: float | None
    success: list[int] | None
    retry: dict[str, Any] | Literal["none"] | None
    breaker: Breaker | None
    secrets: list[str]
    paused: bool
    state: TargetState
    in_flight: int
    last_error: str | None


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    result: Literal["removed"] = "removed"


class Attempt(msgspec.Struct, frozen=True):
    """One call. `status` null: no answer came, see `error`. `excerpt`: the beginning of the answer of a failed call."""

    id: str
    attempt: int
    at_ms: int
    status: int | None
    duration_ms: int
    error: str | None
    excerpt: str | None


class AttemptPage(msgspec.Struct, frozen=True):
    """One page, newest first. Even an empty page may have a cursor; null = this is the last page."""

    attempts: list[Attempt]
    next_cursor: str | None
