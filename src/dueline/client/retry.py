"""When a call is tried again, as data and one pure function. No I/O, no clock.

Only two things are ever repeated: a call that was certainly not done (503 store_down, loading, draining; 429; no
connection), and a call that may have been done but is safe to do twice (`Call.repeatable`). An id is made before the
first try, so every try of a send means the same job.
"""

from __future__ import annotations

import msgspec

from .errors import DuelineApiError, RateLimited, Unavailable, UnknownOutcome, Unreachable


class Retry(msgspec.Struct, frozen=True):
    """How patient a client is. `budget_s`: waits in all; `unreachable` False: a refused connection is final."""

    budget_s: float = 10.0
    first_s: float = 0.1
    most_s: float = 5.0
    unreachable: bool = True


NEVER = Retry(budget_s=0.0, unreachable=False)


def wait_before_retry(
    retry: Retry, error: DuelineApiError, tries: int, waited_s: float, repeatable: bool
) -> float | None:
    """Seconds to wait before the next try after `tries` failed ones; None = give up and raise the error."""
    if isinstance(error, UnknownOutcome):
        if not repeatable:
            return None
    elif isinstance(error, Unreachable):
        if not retry.unreachable:
            return None
    elif not isinstance(error, (Unavailable, RateLimited)):
        return None
    wait_s = min(retry.first_s * 2 ** (tries - 1), retry.most_s)
    if error.retry_after_s is not None:
        wait_s = min(max(wait_s, error.retry_after_s), retry.most_s)
    return wait_s if waited_s + wait_s <= retry.budget_s else None
