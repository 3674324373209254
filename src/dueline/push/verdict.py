"""What a response means, for every courier whose protocol does not define it. No I/O.

a success status (the target's own list, else 2xx)      done
410, or a header Dueline-Abort                          dead (rejected), no more retries
Retry-After: seconds or an HTTP date                    retry after that time, at most a day; ignored if in the past
everything else, redirects included                     retry by the retry policy
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime

from .call import Response
from .courier import DONE, Outcome, Verdict

MAX_RETRY_AFTER_MS = 86_400_000
GONE = 410
ABORT = "dueline-abort"
MAX_REASON_CHARS = 200


def judged(success: Sequence[int], answer: Response, now_ms: int) -> Verdict:
    """The verdict on a response. An empty `success` means every 2xx."""
    if answer.status in success or (not success and 200 <= answer.status < 300):
        return DONE
    error = f"answered {answer.status}"
    abort = answer.headers.get(ABORT)
    if abort is not None:
        return Verdict(Outcome.DEAD, f"{error}, Dueline-Abort: {abort[:MAX_REASON_CHARS]}")
    if answer.status == GONE:
        return Verdict(Outcome.DEAD, f"{error}: gone")
    return Verdict(Outcome.RETRY, error, retry_after_ms(answer.headers.get("retry-after"), now_ms))


def retry_after_ms(text: str | None, now_ms: int) -> int | None:
    """The delay that a Retry-After header requests; None if it is missing, malformed or not in the future. Obeying a 0
    from a load balancer, or a date from a clock that is behind, would use up days of retries within a second."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return MAX_RETRY_AFTER_MS if len(text) > 9 else min(int(text) * 1000, MAX_RETRY_AFTER_MS) or None
    try:
        at = parsedate_to_datetime(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        at_ms = int(at.timestamp() * 1000)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(at_ms - now_ms, MAX_RETRY_AFTER_MS) if at_ms > now_ms else None
