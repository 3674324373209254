"""What an answer means, as every courier reads it unless its protocol says otherwise. No I/O.

a success status (the target's own list, else 2xx)      done
410, or a header Dueline-Abort                          dead (rejected): never again
Retry-After: seconds or an HTTP date                    again after that time, at most a day; now or past: says nothing
everything else, redirects included                     again by the retry policy
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime

from .call import Answer
from .courier import DONE, Outcome, Verdict

MAX_RETRY_AFTER_MS = 86_400_000
GONE = 410
ABORT = "dueline-abort"
MAX_REASON_CHARS = 200


def judged(success: Sequence[int], answer: Answer, now_ms: int) -> Verdict:
    """The meaning of an answer. `success` empty: every 2xx."""
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
    """The delay that a Retry-After header asks for; None when there is none or it makes no sense. Nor does one that is
    over: a balancer that says 0, or a clock that is behind, would use up a ladder of days within a second."""
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
