"""Maps result codes of the store to errors, in one place."""

from __future__ import annotations

from . import errors
from .store import Code

REFUSALS: dict[Code, type[errors.DuelineError]] = {
    Code.NOT_FOUND: errors.NotFound,
    Code.ID_EXISTS: errors.IdExists,
    Code.LEASE_LOST: errors.LeaseLost,
    Code.JOB_LEASED: errors.JobLeased,
    Code.ALREADY_DONE: errors.AlreadyDone,
    Code.VERSION_MISMATCH: errors.VersionMismatch,
    Code.BROKEN: errors.NotFound,
    Code.ELSEWHERE: errors.NotFound,
}

RESULTS: dict[Code, str] = {
    Code.CREATED: "created",
    Code.KEPT: "kept",
    Code.REPLACED: "replaced",
    Code.APPENDED: "appended",
}


def refusal(code: Code) -> errors.DuelineError | None:
    """The error for a code; None for a success."""
    kind = REFUSALS.get(code)
    return None if kind is None else kind()
