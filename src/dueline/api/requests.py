"""The shapes of native requests: what the decoder accepts and what OpenAPI shows. No I/O.

Unknown fields are refused. null means "not given", unless a description gives it another meaning. The types define what
a field can be. Configured limits are checked once, in the engine. The lengths here are the largest that any
configuration allows, so that an oversized list is refused without being read.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from ..bounds import MAX_BANDS, MAX_GROUP_ITEMS, MAX_ITEMS, MAX_PULL_TOPICS, MAX_URL_CHARS, MAX_WAITS

MAX_INT = (1 << 53) - 1  # the largest integer that every JSON reader represents exactly

Name = Annotated[str, Meta(description="1 to 128 of A-Z a-z 0-9 . _ : -", examples=["order-1042"])]
Ms = Annotated[int, Meta(ge=0, le=MAX_INT)]
Count = Annotated[int, Meta(ge=1, le=MAX_INT)]
Duration = Annotated[
    str, Meta(description='Numbers with units (ms s m h d w), such as "90s" or "1h30m".', examples=["90s"])
]
Tags = Annotated[tuple[str, ...], Meta(max_length=64)]
Headers = Annotated[dict[str, str], Meta(max_length=128)]
Ids = Annotated[list[str], Meta(max_length=MAX_ITEMS)]
Conflict = Literal["reject", "keep", "replace"]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body or the query of a call. Unknown fields are refused; fields with their default are not sent."""


class Nothing(Request, frozen=True, kw_only=True):
    """An empty object, or no body at all."""


class Retry(Request, frozen=True, kw_only=True):
    """Either a ladder of waits (after the last one the job is dead), or an exponential backoff with base_ms."""

    ladder: Annotated[list[Duration], Meta(max_length=MAX_WAITS)] | None = None
    base_ms: Count | None = None
    factor: Annotated[float, Meta(ge=1, le=100)] | None = None
    max_ms: Count | None = None
    jitter: Annotated[float, Meta(ge=0, le=1)] | None = None


AnyRetry = Annotated[
    Retry | Literal["none"], Meta(description='"none": at once. null or missing: the topic\'s, else the default.')
]


class MergePolicy(Request, frozen=True, kw_only=True):
    """When a merge group is due and how large it gets; null or missing: the topic's value, else the default."""

    quiet_ms: (
        Annotated[
            int, Meta(ge=0, le=MAX_INT, description="Due this long after its last item. Not together with a time.")
        ]
        | None
    ) = None
    max_wait_ms: (
        Annotated[int, Meta(ge=0, le=MAX_INT, description="Due at the latest this long after its opening.")] | None
    ) = None
    max_items: (
        Annotated[int, Meta(ge=1, le=MAX_GROUP_ITEMS, description="With this many items it is due now. Default 1000.")]
        | None
    ) = None
    update: (
        Annotated[
            Literal["once", "always"],
            Meta(description="Which fixed time applies: that of the first send (once, the default) or of the newest."),
        ]
        | None
    ) = None


class Merge(MergePolicy, frozen=True):
    """Add an item to the open group of `key`, or open a new group. Not together with id and on_conflict."""

    key: Annotated[str, Meta(description="1 to 512 bytes without control characters.", examples=["digest:ann"])]
    item_id: (
        Annotated[str, Meta(description="Like an id. An item that the key already has is not added again.")] | None
    ) = None


class NewJob(Request, frozen=True):
    """A job to send: `body` or `body_base64`, and at most one of the four times; without one it is due now."""

    id: Name | None = None
    body: Annotated[Raw, Meta(description="Any JSON value, stored as text and returned byte for byte.")] | UnsetType = (
        UNSET
    )
    body_base64: Annotated[str, Meta(description="Bytes in standard base64, instead of body.")] | None = None
    delay: Duration | None = None
    delay_ms: Ms | None = None
    at: Annotated[str, Meta(description="RFC 3339 with an offset.", examples=["2030-01-01T08:00:00Z"])] | None = None
    at_ms: Annotated[int, Meta(description="Milliseconds since 1970, UTC. The past means now.")] | None = None
    lease_ms: Count | UnsetType | None = UNSET
    ttl_ms: Annotated[int, Meta(ge=1, le=MAX_INT, description="Counts from the due time.")] | UnsetType | None = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_INT, description="null: no limit.")] | UnsetType | None = UNSET
    retry: AnyRetry | None = None
    on_conflict: Conflict | None = None
    merge: Merge | None = None
    tags: Tags | None = ()
    headers: Headers | None = None


NewJobs = Annotated[list[NewJob], Meta(max_length=MAX_ITEMS)]


class PatchJob(Request, frozen=True, kw_only=True):
    """The fields to change; the others stay. `version`: change only if the job still has this version."""

    body: Raw | UnsetType = UNSET
    body_base64: str | None = None
    delay: Duration | None = None
    delay_ms: Ms | None = None
    at: str | None = None
    at_ms: int | None = None
    lease_ms: Count | UnsetType | None = UNSET
    ttl_ms: Count | UnsetType | None = UNSET
    max_attempts: Count | UnsetType | None = UNSET
    retry: Annotated[AnyRetry | None, Meta(description="null: back to the topic's.")] | UnsetType = UNSET
    tags: Tags | UnsetType | None = UNSET
    headers: Headers | UnsetType | None = UNSET
    version: Ms | None = None


ConsumerName = Annotated[
    str, Meta(min_length=1, max_length=128, description="Who takes the jobs; noted in the jobs' history.")
]


class Lease(Request, frozen=True):
    """A leased job: its id and the lease token of the pull."""

    id: str
    lease: str


class PullJobs(Request, frozen=True, kw_only=True):
    """Take due jobs. Without wait_ms the call does not wait."""

    max: Annotated[int, Meta(ge=1, le=1000)] = 1
    lease_ms: (
        Annotated[int, Meta(ge=1, le=MAX_INT, description="Default: the job's, else the topic's, else 30000.")] | None
    ) = None
    wait_ms: Annotated[int, Meta(ge=0, le=300_000)] = 0
    by: ConsumerName | None = None
    ack: Annotated[list[Lease], Meta(max_length=MAX_ITEMS, description="Jobs of this topic to ack first.")] = []


class PullTopics(Request, frozen=True, kw_only=True):
    """Take due jobs of several topics, in order of priority."""

    topics: Annotated[list[str], Meta(min_length=1, max_length=MAX_PULL_TOPICS)]
    max: Annotated[int, Meta(ge=1, le=1000)] = 1
    lease_ms: Count | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=300_000)] = 0
    by: ConsumerName | None = None


class LeaseRelease(Request, frozen=True, kw_only=True):
    """Give a job back."""

    id: str
    lease: str
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_INT, description="0: at once. null: by the retry policy.")] | None = None
    error: str | None = None
    count: Annotated[bool, Meta(description="false: do not count this attempt.")] | None = None
    discard: Annotated[bool, Meta(description="true: make it dead (rejected).")] | None = None


class LeaseExtend(Request, frozen=True, kw_only=True):
    """Extend a lease to lease_ms from now."""

    id: str
    lease: str
    lease_ms: Count


class AckJobs(Request, frozen=True, kw_only=True):
    """The jobs that are done."""

    jobs: Annotated[list[Lease], Meta(max_length=MAX_ITEMS)]


class ReleaseJobs(Request, frozen=True, kw_only=True):
    """The jobs to give back."""

    jobs: Annotated[list[LeaseRelease], Meta(max_length=MAX_ITEMS)]


class ExtendJobs(Request, frozen=True, kw_only=True):
    """The jobs whose leases are extended."""

    jobs: Annotated[list[LeaseExtend], Meta(max_length=MAX_ITEMS)]


class Filter(Request, frozen=True, kw_only=True):
    """Selects jobs; all given conditions must hold."""

    state: Literal["scheduled", "ready", "leased", "done", "dead", "cancelled"] | None = None
    tag: str | None = None
    due_after_ms: Ms | None = None
    due_before_ms: Ms | None = None


class CancelJobs(Request, frozen=True, kw_only=True):
    """ids, or a merge key, or a filter."""

    ids: Ids | None = None
    merge_key: Annotated[str, Meta(description="Its live groups, except leased ones.")] | None = None
    filter: Filter | None = None
    dry_run: bool | None = None


class ReviveJobs(Request, frozen=True, kw_only=True):
    """Which dead jobs to revive: ids, or a filter."""

    ids: Ids | None = None
    filter: Filter | None = None
    dry_run: bool | None = None
    delay_ms: Ms | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_INT, description="null: no limit.")] | UnsetType | None = UNSET


class PurgeJobs(Request, frozen=True, kw_only=True):
    """Which dead jobs to delete: ids, or a filter."""

    ids: Ids | None = None
    filter: Filter | None = None
    dry_run: bool | None = None


class PauseTopic(Request, frozen=True, kw_only=True):
    """Pause until a time, or until resumed."""

    until_ms: Ms | None = None


class OnDead(Request, frozen=True, kw_only=True):
    """Where dead jobs are forwarded: another topic of the namespace, or a URL. Give exactly one."""

    topic: Name | None = None
    url: Annotated[str, Meta(max_length=MAX_URL_CHARS, examples=["https://example.com/dead"])] | None = None


class PutTopic(Request, frozen=True, kw_only=True):
    """The whole policy of a topic; null or missing = server default. `partitions`: at least as many as the topic
    has; null or missing = unchanged."""

    set_by: (
        Annotated[
            Literal["worker"],
            Meta(description="Change only fields that are unset or that a worker set; null or missing fields stay."),
        ]
        | None
    ) = None
    by_worker: (
        Annotated[
            list[str], Meta(max_length=16, description="The fields that remain set by a worker, as in an answer.")
        ]
        | None
    ) = None
    version: Annotated[int, Meta(ge=0, le=MAX_INT, description="Set only if the topic still has it.")] | None = None

    lease_ms: Count | None = None
    max_attempts: Count | None = None
    ttl_ms: Count | None = None
    retain_ms: Ms | None = None
    dead_retain_ms: Ms | None = None
    retry: AnyRetry | None = None
    on_conflict: Conflict | None = None
    merge: MergePolicy | None = None
    spread_ms: Ms | None = None
    max_body_bytes: Count | None = None
    on_dead: OnDead | None = None
    partitions: Count | None = None


class GetTopic(Request, frozen=True, kw_only=True):
    """The query of a topic."""

    bands_ms: (
        Annotated[
            list[Count],
            Meta(
                max_length=MAX_BANDS,
                description="Count the jobs due within each of these times from now (ascending, joined with commas).",
                examples=[[60_000, 3_600_000]],
            ),
        ]
        | None
    ) = None


class ListJobs(Request, frozen=True, kw_only=True):
    """The query of a list of jobs."""

    state: Literal["scheduled", "ready", "leased", "done", "dead", "cancelled"] | None = None
    tag: str | None = None
    merge_key: (
        Annotated[str, Meta(description="The live groups of this key. Not together with other filters.")] | None
    ) = None
    due_after_ms: Ms | None = None
    due_before_ms: Ms | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    body: Annotated[bool, Meta(description="1: with bodies.")] | None = None


class ListDead(Request, frozen=True, kw_only=True):
    """The query of the list of dead jobs."""

    tag: str | None = None
    due_after_ms: Ms | None = None
    due_before_ms: Ms | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    body: Annotated[bool, Meta(description="0: without bodies.")] | None = None
    newest: (
        Annotated[
            bool,
            Meta(description="1: the latest deaths first, partition by partition. Default: the oldest. Not with tag."),
        ]
        | None
    ) = None


class ListAudit(Request, frozen=True, kw_only=True):
    """The query of the audit log. Every given condition must hold."""

    namespace: str | None = None
    who: (
        Annotated[str, Meta(description='The id of a token. "": calls without tokens; "local": on the store.')] | None
    ) = None
    action: Annotated[str, Meta(examples=["delete_topic"])] | None = None
    since_ms: Ms | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ListTopics(Request, frozen=True, kw_only=True):
    """The query of the lists of topics and of namespaces."""

    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
