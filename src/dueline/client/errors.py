"""Every error that a call can raise, as one class tree. The server's error code selects the class. No I/O.

    DuelineApiError               code message field status id retry_after_s results
    ├── InvalidRequest            bad_json unknown_field missing_field invalid_field too_many_items body_too_large ...
    ├── NotAllowed                unauthorized forbidden egress_refused
    ├── NotFound                  not_found no_route
    ├── Conflict                  id_exists version_mismatch lease_lost job_leased already_done topic_not_empty
    │                             expanding too_many_tokens conflict
    │   ├── IdExists ├── VersionMismatch ├── LeaseLost ├── JobLeased └── AlreadyDone
    ├── RateLimited               rate_limited
    ├── StoreFull                 store_full
    ├── Unavailable               store_down store_replaced loading draining (these: not executed)
    │   ├── Unreachable           no connection (not executed)
    │   └── UnknownOutcome        unknown_outcome, or no answer came (may have been executed; repeat with the same id)
    └── ServerFault               internal, or an answer that does not come from this API

A code that this version does not know maps to the class of its HTTP status, so a client works with newer servers.
Catch UnknownOutcome before Unavailable where the difference matters.
"""

from __future__ import annotations

from typing import Any

from ..api.statuses import STATUS

GONE = frozenset({"not_found", "already_done"})  # codes of a job that cannot be cancelled, because it is not live


class DuelineApiError(Exception):
    """A call that was answered with an error, or not answered.

    `code` is stable and meant for programs, `message` is for people, `field` names the invalid field of the request.
    `results`: if a call on many jobs took several requests, the results of the requests before this error. `version`:
    the current version, if the call expected another one."""

    code: str = "error"

    def __init__(
        self, code: str, message: str, field: str | None = None, status: int | None = None, id: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.status = status
        self.id = id
        self.retry_after_s: float | None = None
        self.raw: bytes | None = None  # the unchanged answer, if there was one
        self.results: tuple[Any, ...] = ()
        self.version: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors must survive pickling, because workers, test runners and task pools pass them between processes."""
        return type(self), (self.code, self.message, self.field, self.status, self.id), self.__dict__

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" if self.field is None else f"{self.field}: {self.message} ({self.code})"


class InvalidRequest(DuelineApiError):
    """The server rejects the request; repeating it unchanged does not help."""

    code = "invalid_request"


class NotAllowed(DuelineApiError):
    """The token is missing or wrong, or does not permit this call; or the server refuses the push target's address."""

    code = "forbidden"


class NotFound(DuelineApiError):
    """There is no such job, topic or path."""

    code = "not_found"


class Conflict(DuelineApiError):
    """The job is not in a state that allows this."""

    code = "conflict"


class IdExists(Conflict):
    """The id is taken by a different request."""

    code = "id_exists"


class VersionMismatch(Conflict):
    """The job was changed since that version was read."""

    code = "version_mismatch"


class LeaseLost(Conflict):
    """The lease has ended; another consumer may hold the job."""

    code = "lease_lost"


class JobLeased(Conflict):
    """A consumer holds the job."""

    code = "job_leased"


class AlreadyDone(Conflict):
    """The job has ended."""

    code = "already_done"


class RateLimited(DuelineApiError):
    """Too many calls; this one was not executed."""

    code = "rate_limited"


class StoreFull(DuelineApiError):
    """The store accepts no more jobs until some are finished or removed."""

    code = "store_full"


class Unavailable(DuelineApiError):
    """The server cannot do this now. The call was not executed, except for the subclass UnknownOutcome."""

    code = "unavailable"


class Unreachable(Unavailable):
    """No connection could be made; the call was not executed."""

    code = "unreachable"


class UnknownOutcome(Unavailable):
    """The call may have been executed: repeat it with the same id."""

    code = "unknown_outcome"


class ServerFault(DuelineApiError):
    """The server failed, or the answer does not come from a Dueline server."""

    code = "internal"


BY_CODE: dict[str, type[DuelineApiError]] = {
    "id_exists": IdExists,
    "version_mismatch": VersionMismatch,
    "lease_lost": LeaseLost,
    "job_leased": JobLeased,
    "already_done": AlreadyDone,
    "unknown_outcome": UnknownOutcome,
}

BY_STATUS: dict[int, type[DuelineApiError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
    503: Unavailable,
    507: StoreFull,
}


def error_of(
    code: str, message: str, field: str | None = None, status: int | None = None, id: str | None = None
) -> DuelineApiError:
    """The error for a code; for codes unknown here, `status` selects the class. In an answer about many jobs, an item's
    error has a code but no status."""
    effective = status if status is not None else STATUS.get(code, 400)
    kind = BY_CODE.get(code) or BY_STATUS.get(effective)
    if kind is None:
        kind = InvalidRequest if 400 <= effective < 500 else ServerFault
    return kind(code, message, field, status, id)
