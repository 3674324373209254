"""The answers of the native API as frozen values. No I/O.

Field names are those of the API. Unknown fields are ignored, so a client works with newer servers. A JSON body is kept
as raw text (`msgspec.Raw`) and is returned byte for byte.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .times import datetime_of
from .typed import decode_as

T = TypeVar("T")

SHOWN_BYTES = 200  # of a body in a repr


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """The three forms that a body has in an answer. At most one of them is set."""

    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType | None = UNSET
    items: tuple[Raw, ...] | UnsetType | None = UNSET

    @property
    def data(self) -> bytes | None:
        """The body as bytes: JSON text, or the decoded base64. None when the answer has no body."""
        if isinstance(self.body, Raw):
            return bytes(self.body)
        if isinstance(self.body_base64, str):
            try:
                return base64.b64decode(self.body_base64, validate=True)
            except binascii.Error:
                return None
        if isinstance(self.items, tuple):
            return b"[" + b",".join(bytes(item) for item in self.items) + b"]"
        return None

    def json(self) -> Any:
        """The body as a Python value; raises msgspec.DecodeError when it is not JSON."""
        return decode_as(Any, self.data or b"null")

    def body_as(self, type: type[T]) -> T:
        """The body as a value of `type`: a msgspec struct, dataclass, TypedDict, pydantic model, a list of them, or any
        type that msgspec decodes. Raises msgspec.ValidationError, or pydantic's, when the body does not fit."""
        return decode_as(type, self.data or b"null")

    def __repr__(self) -> str:
        """The id, the topic, the start of the body, and every other field that differs from its default."""
        shown: list[str] = []
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if field.name not in Payload.__struct_fields__ and value not in (field.default, {}):
                shown.append(f"{field.name}={value!r}")
        if (data := self.data) is not None:
            name = "items" if isinstance(self.items, tuple) else "body"
            shown.insert(2, f"{name}={_beginning(data, isinstance(self.body_base64, str))}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Job(Payload, frozen=True, kw_only=True):
    """A job as it was when the server answered."""

    id: str
    topic: str
    state: str
    due_at_ms: int
    created_at_ms: int
    reason: str | None = None
    updated_at_ms: int | None = None
    ended_at_ms: int | None = None
    attempts: int = 0
    max_attempts: int | None = None
    lease_ms: int | None = None
    lease_until_ms: int | None = None
    expires_at_ms: int | None = None
    retain_until_ms: int | None = None
    retry: dict[str, Any] | Literal["none"] | None = None
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    merge_key: str | None = None
    version: int = 0
    last_error: str | None = None

    @property
    def due_at(self) -> datetime:
        """The due time in UTC."""
        return datetime_of(self.due_at_ms)


class LeasedJob(Payload, frozen=True, kw_only=True):
    """A leased job. `lease` is the token that ack, release and extend need."""

    id: str
    topic: str
    attempt: int
    delivery: int
    lease: str
    lease_until_ms: int
    due_at_ms: int
    created_at_ms: int
    max_attempts: int | None = None
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    merge_key: str | None = None

    @property
    def due_at(self) -> datetime:
        """The due time in UTC."""
        return datetime_of(self.due_at_ms)


class Sent(msgspec.Struct, frozen=True):
    """result: created | kept | replaced | appended. `items_count` is set for merge groups only."""

    id: str
    topic: str
    result: str
    state: str
    due_at_ms: int
    version: int

    @property
    def due_at(self) -> datetime:
        """The due time in UTC."""
        return datetime_of(self.due_at_ms)

    items_count: int | None = None


class Refusal(msgspec.Struct, frozen=True):
    """Why one item, or a whole call, was refused."""

    code: str
    message: str
    field: str | None = None


class SentItem(msgspec.Struct, frozen=True):
    """One item of send_many: either a result or an error."""

    id: str | None = None
    topic: str | None = None
    result: str | None = None
    state: str | None = None
    due_at_ms: int | None = None
    version: int | None = None
    error: Refusal | None = None

    @property
    def ok(self) -> bool:
        """Whether this one was done."""
        return self.error is None

    items_count: int | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What happened to one job in an ack, release, extend, cancel, fire, revive or purge."""

    id: str
    result: str | None = None
    reason: str | None = None
    due_at_ms: int | None = None
    lease_until_ms: int | None = None
    version: int | None = None
    error: Refusal | None = None

    @property
    def ok(self) -> bool:
        """Whether this one was done."""
        return self.error is None


class Outcomes(msgspec.Struct, frozen=True):
    """Results in the order of the request."""

    results: tuple[Outcome, ...]


class SentMany(msgspec.Struct, frozen=True):
    """Results in the order of the request."""

    results: tuple[SentItem, ...]


class Bulk(msgspec.Struct, frozen=True):
    """What a call by filter did. One of cancelled, revived and purged is set. `complete` False: call again."""

    matched: int
    dry_run: bool = False
    cancelled: int | None = None
    revived: int | None = None
    purged: int | None = None
    complete: bool = True

    @property
    def changed(self) -> int:
        return next((n for n in (self.cancelled, self.revived, self.purged) if n is not None), 0)


class LeasedJobs(msgspec.Struct, frozen=True):
    """The jobs that a pull leased; empty when nothing was due."""

    jobs: tuple[LeasedJob, ...]


class JobPage(msgspec.Struct, frozen=True):
    """One page of jobs. A page may be empty and still have a cursor. `by_reason` is set for lists of dead jobs only."""

    jobs: tuple[Job, ...]
    next_cursor: str | None = None
    by_reason: dict[str, int] | None = None


class Counts(msgspec.Struct, frozen=True):
    """Jobs of a topic by state."""

    scheduled: int = 0
    ready: int = 0
    leased: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0


class Topic(msgspec.Struct, frozen=True):
    """A topic's counts and policy. The policy is kept as the server wrote it; its `by_worker` names the fields that a
    worker set. `version` changes with the policy, the paused flag and the push target."""

    topic: str
    counts: Counts
    policy: dict[str, Any] = {}
    next_due_at_ms: int | None = None
    oldest_ready_at_ms: int | None = None
    waiters: int = 0
    paused: bool = False
    paused_until_ms: int | None = None
    partitions: int = 1
    push: bool = False
    version: int | None = None


class TopicPage(msgspec.Struct, frozen=True):
    """One page of topics."""

    topics: tuple[Topic, ...]
    next_cursor: str | None = None


class TopicDeleted(msgspec.Struct, frozen=True):
    """The answer to the deletion of a topic."""

    topic: str
    result: str


class Namespace(msgspec.Struct, frozen=True):
    """A namespace with at least one topic."""

    namespace: str


class NamespacePage(msgspec.Struct, frozen=True):
    """One page of namespaces."""

    namespaces: tuple[Namespace, ...]
    next_cursor: str | None = None


class Paused(msgspec.Struct, frozen=True):
    """The answer to pause and resume."""

    topic: str
    paused: bool
    paused_until_ms: int | None = None


class Push(msgspec.Struct, frozen=True):
    """A push target, its settings and current state. Secrets are masked."""

    state: str
    url: str | None = None
    service: str | None = None
    method: str = "POST"
    headers: dict[str, str] = {}
    timeout_ms: int | None = None
    concurrency: int = 0
    rate_per_s: float | None = None
    success: tuple[int, ...] | None = None
    retry: dict[str, Any] | Literal["none"] | None = None
    breaker: dict[str, Any] | None = None
    secrets: tuple[str, ...] = ()
    paused: bool = False
    in_flight: int = 0
    last_error: str | None = None


class PushRemoved(msgspec.Struct, frozen=True):
    """The answer to the removal of a push target."""

    topic: str
    result: str


class Attempt(msgspec.Struct, frozen=True):
    """One call to a push target. `status` None: no answer came."""

    id: str
    attempt: int
    at_ms: int
    status: int | None = None
    duration_ms: int = 0
    error: str | None = None
    excerpt: str | None = None


class AttemptPage(msgspec.Struct, frozen=True):
    """One page of calls, newest first."""

    attempts: tuple[Attempt, ...]
    next_cursor: str | None = None


class Info(msgspec.Struct, frozen=True):
    """What a server reports about itself."""

    version: str
    namespace: str | None = None
    durability: str | None = None
    store: Any = None
    limits: dict[str, Any] = {}
    clock_offset_ms: float | None = None
    auth: str | None = None  # "none": tokens are not checked


class Readiness(msgspec.Struct, frozen=True):
    """Whether a server is ready, and if not, why. `warnings`: problems that do not make it unready."""

    ready: bool
    reasons: tuple[Any, ...] = ()
    warnings: tuple[Any, ...] = ()


def _beginning(data: bytes, is_bytes: bool) -> str:
    """The start of a body: JSON text as written, with unprintable characters escaped."""
    begin = data[:SHOWN_BYTES]
    text = repr(begin) if is_bytes else "".join(map(_printable, begin.decode(errors="backslashreplace")))
    return text if len(begin) == len(data) else f"{text}... ({len(data)} bytes)"


def _printable(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()
