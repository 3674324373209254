"""The shapes of requests about push targets: what the decoder accepts and what OpenAPI shows. No I/O.

The types define what a field can be. Limits of the product are checked once, in the engine (engine.push_checks).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from ..bounds import MAX_CONCURRENCY, MAX_RATE_PER_S, MAX_SECRETS, MAX_SUCCESS, MAX_TIMEOUT_MS, MAX_URL_CHARS
from .requests import AnyRetry, Headers, Request


class PutBreaker(Request, frozen=True, kw_only=True):
    """After `failures` failed calls in a row, calls stop for `open_ms`. Then the outcome of the next call decides."""

    failures: Annotated[int, Meta(ge=1, le=10_000)] = 10
    open_ms: Annotated[int, Meta(ge=1, le=86_400_000)] = 30_000


class PutPush(Request, frozen=True, kw_only=True):
    """The whole push target of a topic: `url` or `service`. Missing or null fields have their default."""

    url: (
        Annotated[
            str, Meta(max_length=MAX_URL_CHARS, description="http or https.", examples=["https://example.com/hook"])
        ]
        | None
    ) = None
    service: Annotated[str, Meta(description="A name that discovery resolves, instead of url.")] | None = None
    method: Annotated[str, Meta(pattern="^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}$", description="Default POST.")] | None = (
        None
    )
    headers: Annotated[Headers, Meta(description="Sent with every call.")] | None = None
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_MS, description="For one call. Default 30000.")] | None = None
    concurrency: (
        Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY, description="Concurrent calls, all processes. Default 16.")]
        | None
    ) = None
    rate_per_s: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=MAX_RATE_PER_S,
                description="Calls per second, over all processes. null or 0: no limit.",
            ),
        ]
        | None
    ) = None
    success: (
        Annotated[
            list[Annotated[int, Meta(ge=100, le=599)]],
            Meta(min_length=1, max_length=MAX_SUCCESS, description="The statuses that mean success. null: every 2xx."),
        ]
        | None
    ) = None
    retry: (
        Annotated[AnyRetry, Meta(description="For jobs sent from now on, unless the job or the topic sets its own.")]
        | None
    ) = None
    breaker: Annotated[PutBreaker, Meta(description="null: no breaker.")] | UnsetType | None = UNSET
    secrets: (
        Annotated[
            list[Annotated[str, Meta(description="whsec_ and base64, or masked (whsec_...last4) to keep it.")]],
            Meta(max_length=MAX_SECRETS, description="Every call is signed with each of them. The newest first."),
        ]
        | None
    ) = None
    paused: bool | None = None


class ListAttempts(Request, frozen=True, kw_only=True):
    """The query of the attempt log."""

    id: Annotated[str, Meta(description="Only attempts of this job.")] | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
