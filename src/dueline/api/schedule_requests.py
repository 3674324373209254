"""The shapes of requests about schedules: what the decoder accepts and what OpenAPI shows. No I/O."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from .requests import MAX_INT, AnyRetry, Count, Duration, Headers, Ms, Name, Request, Tags

MAX_JITTER_MS = 86_400_000
MAX_NEXT = 100


class NewTemplate(Request, frozen=True, kw_only=True):
    """What each job of a schedule carries: `body` or `body_base64`, and the same options as a send. A job's id is made
    from the schedule's name and the occurrence."""

    body: Annotated[Raw, Meta(description="Any JSON value, stored as text and returned byte for byte.")] | UnsetType = (
        UNSET
    )
    body_base64: Annotated[str, Meta(description="Bytes in standard base64, instead of body.")] | None = None
    lease_ms: Count | UnsetType | None = UNSET
    ttl_ms: Annotated[int, Meta(ge=1, le=MAX_INT, description="Counts from the due time.")] | UnsetType | None = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_INT, description="null: no limit.")] | UnsetType | None = UNSET
    retry: AnyRetry | None = None
    tags: Tags | None = ()
    headers: Headers | None = None


class PutSchedule(Request, frozen=True, kw_only=True):
    """A whole schedule: `cron` (with `tz`) or `every`, and the jobs that it makes. Missing fields get their defaults.

    `version`: only if the schedule still has this version; 0: only if there is none."""

    topic: Annotated[str, Meta(description="Where its jobs are sent.", examples=["reports"])]
    job: NewTemplate
    cron: (
        Annotated[
            str,
            Meta(
                description="5 fields, or 6 with seconds first, or a name such as @daily. Not together with every.",
                examples=["0 9 * * MON-FRI"],
            ),
        ]
        | None
    ) = None
    tz: (
        Annotated[str, Meta(description='The IANA time zone of `cron`. Default "UTC".', examples=["Europe/Madrid"])]
        | None
    ) = None
    every: (
        Annotated[Duration, Meta(description="An interval of at least 1s, counted from starts_at_ms, else from 1970.")]
        | None
    ) = None
    starts_at_ms: Annotated[Ms, Meta(description="No occurrence is earlier.")] | None = None
    ends_at_ms: Annotated[Ms, Meta(description="No occurrence is later.")] | None = None
    jitter_ms: (
        Annotated[
            int,
            Meta(
                ge=0, le=MAX_JITTER_MS, description="Each job is due up to this much after its occurrence. Default 0."
            ),
        ]
        | None
    ) = None
    misfire: (
        Annotated[
            Literal["latest", "skip", "all"],
            Meta(
                description="What becomes of occurrences that passed while nothing ran: a job for the latest one "
                "(default), none, or one each (the last 100)."
            ),
        ]
        | None
    ) = None
    overlap: (
        Annotated[
            Literal["allow", "skip"],
            Meta(description="skip: no job while that of the last occurrence is alive. Default allow."),
        ]
        | None
    ) = None
    paused: bool | None = None
    owner: (
        Annotated[
            Name, Meta(description="The program that writes it. A worker removes only schedules of its own name.")
        ]
        | None
    ) = None
    version: Annotated[int, Meta(ge=0, le=MAX_INT)] | None = None


class ListSchedules(Request, frozen=True, kw_only=True):
    """The query of the list of schedules."""

    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ListOccurrences(Request, frozen=True, kw_only=True):
    """The query of the next occurrences."""

    count: Annotated[int, Meta(ge=1, le=MAX_NEXT)] = 10
