"""The shapes of answers about push targets: what the encoder writes and what OpenAPI shows. No I/O."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

TargetState = Literal["ok", "open", "half_open", "paused"]


class Breaker(msgspec.Struct, frozen=True):
    failures: int
    open_ms: int


class Push(msgspec.Struct, frozen=True):
    """A push target and how it fares. Secrets are shown as whsec_...last4, and so are credentials in headers.

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
    """One call. `status` null: no answer came, `error` says why. `excerpt`: the beginning of a failed call's answer."""

    id: str
    attempt: int
    at_ms: int
    status: int | None
    duration_ms: int
    error: str | None
    excerpt: str | None


class AttemptPage(msgspec.Struct, frozen=True):
    """One page, the newest first. It may be empty and still have a cursor; null = that was the last one."""

    attempts: list[Attempt]
    next_cursor: str | None
