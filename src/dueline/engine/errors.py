"""All errors of the product, as one tree. No I/O.

    DuelineError                    internal
    ├── BadRequest                  invalid_field
    │   ├── BadJson                 bad_json
    │   ├── UnknownField            unknown_field
    │   ├── MissingField            missing_field
    │   ├── InvalidField            invalid_field
    │   └── TooManyItems            too_many_items
    ├── Unauthorized                unauthorized
    ├── Forbidden                   forbidden
    │   └── EgressRefused           egress_refused
    ├── NotFound                    not_found
    ├── NoRoute                     no_route
    ├── MethodNotAllowed            method_not_allowed
    ├── Conflict                    conflict
    │   ├── IdExists                id_exists
    │   ├── VersionMismatch         version_mismatch
    │   ├── LeaseLost               lease_lost
    │   ├── JobLeased               job_leased
    │   ├── AlreadyDone             already_done
    │   ├── TopicNotEmpty           topic_not_empty
    │   ├── Expanding               expanding
    │   └── TooManyTokens           too_many_tokens
    ├── BodyTooLarge                body_too_large
    ├── UnsupportedMediaType        unsupported_media_type
    ├── RateLimited                 rate_limited: 429 in every dialect
    │   └── QuotaExceeded           rate_limited: of a token or a namespace
    ├── Unavailable                 store_down
    │   ├── StoreDown               store_down
    │   ├── Loading                 loading
    │   ├── Draining                draining
    │   ├── ClockStep               store_down
    │   ├── StoreReplaced           store_replaced
    │   └── UnknownOutcome          unknown_outcome: the call may have taken effect; retry with the same id
    └── StoreFull                   store_full

The right column is each class's `code`. The docstring of a class is its default message. `done` tells whether the call
took effect: False = certainly not, None = unknown (only possible once the call was written to a socket).
"""

from __future__ import annotations

import inspect


class DuelineError(Exception):
    """Something went wrong."""

    code = "internal"
    done: bool | None = False

    def __init__(self, message: str | None = None, field: str | None = None) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "").split("\n")[0]
        self.field = field
        super().__init__(self.message)


class BadRequest(DuelineError):
    """The request is not valid."""

    code = "invalid_field"


class BadJson(BadRequest):
    """The body is not valid JSON."""

    code = "bad_json"


class UnknownField(BadRequest):
    """The request has a field that does not exist."""

    code = "unknown_field"


class MissingField(BadRequest):
    """A required field is missing."""

    code = "missing_field"


class InvalidField(BadRequest):
    """A field has a value that is not allowed."""

    code = "invalid_field"


class TooManyItems(BadRequest):
    """Too many items in one call."""

    code = "too_many_items"


class Unauthorized(DuelineError):
    """A valid token is needed."""

    code = "unauthorized"


class Forbidden(DuelineError):
    """This token may not do that."""

    code = "forbidden"


class EgressRefused(Forbidden):
    """This server does not call that address."""

    code = "egress_refused"


class NotFound(DuelineError):
    """There is no such job or topic."""

    code = "not_found"


class NoRoute(DuelineError):
    """There is nothing at this path."""

    code = "no_route"


class MethodNotAllowed(DuelineError):
    """This path does not take that method."""

    code = "method_not_allowed"


class Conflict(DuelineError):
    """The job is not in a state that allows this."""

    code = "conflict"


class IdExists(Conflict):
    """A job with this id exists and the request is a different one."""

    code = "id_exists"


class VersionMismatch(Conflict):
    """The job was changed since this version was read."""

    code = "version_mismatch"

    def __init__(self, message: str | None = None, field: str | None = None, version: int | None = None) -> None:
        super().__init__(message, field)
        self.version = version  # the current one, if it is known


class LeaseLost(Conflict):
    """The lease ended before this call; another consumer may hold the job."""

    code = "lease_lost"


class JobLeased(Conflict):
    """A consumer holds the job; it can be changed when the lease is over."""

    code = "job_leased"


class AlreadyDone(Conflict):
    """The job has ended."""

    code = "already_done"


class TopicNotEmpty(Conflict):
    """The topic holds jobs: finish, cancel or purge them first."""

    code = "topic_not_empty"


class Expanding(Conflict):
    """Partitions were added before, and the old ones still hold jobs."""

    code = "expanding"


class TooManyTokens(Conflict):
    """There are 10,000 tokens already. Revoked ones are removed 30 days later."""

    code = "too_many_tokens"


class BodyTooLarge(DuelineError):
    """The body is larger than the limit."""

    code = "body_too_large"


class UnsupportedMediaType(DuelineError):
    """Send the body as application/json."""

    code = "unsupported_media_type"


class RateLimited(DuelineError):
    """Too many calls are waiting; retry a little later."""

    code = "rate_limited"

    def __init__(self, message: str | None = None, field: str | None = None, retry_after_s: int = 1) -> None:
        super().__init__(message, field)
        self.retry_after_s = retry_after_s


class QuotaExceeded(RateLimited):
    """A limit of this token or namespace is reached; nothing was done."""


class Unavailable(DuelineError):
    """The server cannot do this right now."""

    code = "store_down"
    retry_after_s = 1


class StoreDown(Unavailable):
    """The store does not answer; nothing was done."""

    code = "store_down"


class Loading(Unavailable):
    """The store is still loading its data; nothing was done."""

    code = "loading"


class Draining(Unavailable):
    """The server is stopping; nothing was done."""

    code = "draining"


class ClockStep(Unavailable):
    """The store's clock jumped; nothing is done until the new time is confirmed."""

    code = "store_down"


class StoreReplaced(Unavailable):
    """The store does not have the data that this server knows: it lost some, or is another one. Nothing was done."""

    code = "store_replaced"


class UnknownOutcome(Unavailable):
    """The store did not answer in time: the call may have been done. Retry with the same id."""

    code = "unknown_outcome"
    done = None

    def __init__(self, message: str | None = None, field: str | None = None, id: str | None = None) -> None:
        super().__init__(message, field)
        self.id = id


class StoreFull(DuelineError):
    """The store is full: sends are refused until jobs are finished or removed."""

    code = "store_full"
