"""The errors of calls that are about several jobs. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.errors import BadRequest, DuelineError
from ...engine.fan_out import PartialOutcome, error_for
from ...engine.store import Outcome


def in_list(error: BadRequest, name: str) -> BadRequest:
    """The same error with a field inside the list `name`: "[3].lease" becomes "jobs[3].lease"."""
    if error.field is None or error.field.startswith("["):
        error.field = name + (error.field or "")
    return error


def of_each(error: BaseException, ids: Sequence[str]) -> Sequence[Outcome | DuelineError] | None:
    """What became of each job of a call that failed. None: the whole call is refused."""
    if isinstance(error, PartialOutcome):
        return error.results
    if not ids or not isinstance(error, DuelineError) or isinstance(error, BadRequest):
        return None
    return [error_for(error, id) for id in ids]
