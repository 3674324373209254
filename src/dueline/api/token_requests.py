"""The shapes of requests about access tokens: what the decoder accepts and what OpenAPI shows. No I/O."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from ..bounds import MAX_PATTERNS
from .requests import Duration, Ms, Name, Request

MAX_JOBS = 1_000_000_000
TokenRight = Literal["send", "pull", "read", "manage", "push", "admin"]


class CreateToken(Request, frozen=True, kw_only=True):
    """A token to create. It may do no more than the token that creates it, and expires no later than that one."""

    name: Annotated[str, Meta(description="For people: what the token is for.", examples=["billing workers"])]
    rights: Annotated[list[TokenRight], Meta(min_length=1, max_length=6, description="admin includes all others.")]
    namespace: (
        Annotated[Name | None, Meta(description="null: all namespaces. Missing: the namespace of the request.")]
        | UnsetType
    ) = UNSET
    topics: (
        Annotated[
            list[str],
            Meta(
                min_length=1,
                max_length=MAX_PATTERNS,
                description='Patterns with * ? [...]. Default ["*"].',
                examples=[["billing-*"]],
            ),
        ]
        | None
    ) = None
    expires: Annotated[Duration, Meta(description="Expires after this time.", examples=["90d"])] | None = None
    expires_at_ms: Annotated[Ms, Meta(description="Expires at this time, instead.")] | None = None
    requests_per_s: (
        Annotated[float, Meta(gt=0, le=1_000_000, description="Requests per second, per server process.")] | None
    ) = None
    max_connections: Annotated[int, Meta(ge=1, le=1_000_000, description="Per server process.")] | None = None
    max_polls: (
        Annotated[
            int, Meta(ge=1, le=1_000_000, description="Pulls in progress, waiting ones included, per server process.")
        ]
        | None
    ) = None
    max_pending_jobs: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_JOBS,
                description="It sends only while the namespace has fewer pending jobs than this, over all servers.",
            ),
        ]
        | None
    ) = None
    max_queued_jobs: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_JOBS,
                description="Jobs of its calls at a time, per server process. Pulls, acks, releases and extends do not "
                "count.",
            ),
        ]
        | None
    ) = None
    look_ups_per_s: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1_000_000,
                description="Host names that its calls may choose for pushes per second, per server process.",
            ),
        ]
        | None
    ) = None
    push_allow: (
        Annotated[
            list[str],
            Meta(
                max_length=MAX_PATTERNS,
                description="The only networks, host names and services that it may choose for pushes. Empty: none.",
                examples=[["hooks.example.com", "10.1.0.0/16"]],
            ),
        ]
        | None
    ) = None


class RotateToken(Request, frozen=True, kw_only=True):
    """Give a token a new secret."""

    overlap: Annotated[Duration, Meta(description='The old secret stays valid for this long. Default "1h".')] | None = (
        None
    )


class ListTokens(Request, frozen=True, kw_only=True):
    """The query of the list of tokens."""

    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
