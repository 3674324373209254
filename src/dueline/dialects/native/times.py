"""The four ways to specify a time. No I/O.

An RFC 3339 time needs an offset, because without one its meaning depends on the machine. Fractions of a millisecond are
rounded up, so that no job is early.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from ...api.requests import NewJob, PatchJob
from ...engine.errors import InvalidField
from ...engine.policy import duration_ms

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,18}))?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def when(job: NewJob | PatchJob) -> tuple[int | None, int | None]:
    """(delay_ms, at_ms) of a request; both None when no time was given."""
    if job.delay is None and job.at is None and job.at_ms is None:
        return job.delay_ms, None
    delay, delay_ms, at, at_ms = job.delay, job.delay_ms, job.at, job.at_ms
    if (delay is not None) + (delay_ms is not None) + (at is not None) + (at_ms is not None) > 1:
        given = [name for name in ("delay", "delay_ms", "at", "at_ms") if getattr(job, name) is not None]
        raise InvalidField(f"give one time, not both {given[0]} and {given[1]}", given[1])
    if delay is not None:
        return duration_ms(delay, "delay"), None
    if at is not None:
        return None, rfc3339_ms(at)
    return None, max(at_ms or 0, 0)


def rfc3339_ms(text: str) -> int:
    """Milliseconds since 1970 of a time with an offset. Times before 1970 become 0, because they are past anyway."""
    match = _RFC3339.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise InvalidField('is not an RFC 3339 time with an offset, such as "2030-01-01T08:00:00Z"', "at")
    year, month, day, hour, minute, second, fraction, zulu, sign, off_hour, off_minute = match.groups()
    leap = second == "60"
    try:
        offset = UTC if zulu else _offset(sign, int(off_hour), int(off_minute))
        moment = datetime(
            int(year), int(month), int(day), int(hour), int(minute), 59 if leap else int(second), tzinfo=offset
        )
        since = moment - _EPOCH
    except (ValueError, OverflowError) as error:
        raise InvalidField(f"is not a time: {error}", "at") from None
    ms = (since.days * 86_400 + since.seconds + leap) * 1000
    if fraction:
        ms += -(-int(fraction) * 1000 // 10 ** len(fraction))
    return max(ms, 0)


def _offset(sign: str, hours: int, minutes: int) -> timezone:
    if minutes > 59:
        raise ValueError("offset minutes must be in 0..59")
    delta = timedelta(hours=hours, minutes=minutes)
    return timezone(-delta if sign == "-" else delta)
