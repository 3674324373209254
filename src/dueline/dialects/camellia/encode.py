"""From the engine's values to camellia's answers. No I/O.

The application reports its result in `code`, with HTTP status 200. Requests that the original's framework refuses get
its error page, with a real HTTP status. An answer is never empty, because that would end the Java SDK's pull thread.

In the original most handlers return objects, which become JSON with null for missing values. Long polls and health
pages return strings: JSON without the null keys, sent as plain text unless the client prefers JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec

from ...engine.commands import Sent, TopicView
from ...engine.errors import BadRequest, BodyTooLarge, Conflict, DuelineError, NotFound
from ...engine.job import Job, LeasedJob, State
from ...engine.limits import LAST_MS
from ..body import text_of
from ..http import Request, Response
from .decode import SendMsg
from .form import FrameworkRefusal
from .monitor import Counts

MAX_INT = (1 << 31) - 1
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
BANDS_MS = (
    MINUTE_MS, 10 * MINUTE_MS, 30 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS, 7 * DAY_MS, 30 * DAY_MS
)  # fmt: skip
BANDS = ("0To1min", "1minTo10min", "10minTo30min", "30minTo1hour", "1hourTo6hour", "6hourTo1day", "1dayTo7day",
         "7dayTo30day", "30dayToInfinite")  # fmt: skip

OK = Response(200, b'{"code":200,"msg":"success"}')
JSON, TEXT = "application/json", "text/plain;charset=UTF-8"
ENDED = (4, 5, 6, 7)  # statuses
_NULLS = {"sendMsg": "delayMsg", "getMsg": "delayMsg", "pullMsg": "delayMsgList"}  # null after a failure
_STRING_TYPES = {"application/json": JSON, "application/*": JSON, "text/plain": TEXT, "text/*": TEXT, "*/*": TEXT}
_LONG_POLL = "longPollingMsg"
_PARAMETERS = {"id": "msgId", "body": "msg"}  # engine's field name -> camellia's parameter
_FRAMEWORK = {"no_route": 404, "method_not_allowed": 405, "unauthorized": 401, "forbidden": 403}

_to_json = msgspec.json.Encoder().encode


class DelayMsg(msgspec.Struct, frozen=True, rename="camel"):
    """A message on the wire, with exactly these nine fields."""

    topic: str
    msg_id: str
    msg: str
    produce_time: int
    trigger_time: int
    expire_time: int
    max_retry: int
    retry: int
    status: int


def sent(parsed: SendMsg, done: Sent) -> Response:
    """The answer of a send that stored its message, which is due after exactly the requested delay."""
    due_ms = done.due_at_ms
    return one(
        DelayMsg(
            parsed.topic,
            done.id,
            parsed.msg,
            due_ms - parsed.delay_ms,
            due_ms,
            due_ms + parsed.ttl_ms,
            _max_retry(parsed.max_attempts),
            0,
            1 if done.state is State.SCHEDULED else 2,
        )
    )


def one(msg: DelayMsg) -> Response:
    return Response(200, _to_json({"code": 200, "msg": "success", "delayMsg": msg}))


def pulled(jobs: Sequence[LeasedJob], content_type: str) -> Response:
    msgs = [leased_msg(job) for job in jobs]
    return Response(200, _to_json({"code": 200, "msg": "success", "delayMsgList": msgs}), content_type)


def leased_msg(job: LeasedJob) -> DelayMsg:
    return _msg(job, job.max_attempts, job.attempt, 3)


def job_msg(job: Job, now_ms: int) -> DelayMsg:
    return _msg(job, job.policy.max_attempts, job.attempts, status_of(job, now_ms))


def _msg(job: Job | LeasedJob, max_attempts: int | None, attempts: int, status: int) -> DelayMsg:
    due_ms = job.first_due_at_ms
    return DelayMsg(
        job.topic,
        job.id,
        text_of(job),
        min(job.created_at_ms, due_ms),
        due_ms,
        LAST_MS if job.expires_at_ms is None else job.expires_at_ms,
        _max_retry(max_attempts),
        attempts,
        status,
    )


_STATUS = {State.SCHEDULED: 1, State.READY: 2, State.LEASED: 3, State.DONE: 4, State.CANCELLED: 7}


def status_of(job: Job, now_ms: int) -> int:
    """One of the seven statuses. An expired message that is still being consumed is shown as dropped, because it will
    not be delivered again, although its ack still counts."""
    if job.state is State.LEASED and job.expires_at_ms is not None and job.expires_at_ms <= now_ms:
        return 6
    if job.state is State.DEAD:
        return 6 if job.attempts else 5
    return _STATUS[job.state]


def failed(request: Request, error: DuelineError) -> Response:
    """The answer for a refusal."""
    status = 400 if isinstance(error, FrameworkRefusal) else _FRAMEWORK.get(error.code)
    if status is not None:
        return framework_page(status, request.path)
    code = 500
    if isinstance(error, BadRequest | BodyTooLarge | Conflict):  # conflict: another topic uses the id
        code = 400
    elif isinstance(error, NotFound):
        code = 404
    field = _PARAMETERS.get(error.field or "", error.field)
    text = f"{field}: {error.message}" if field and not error.message.startswith(field) else error.message
    operation = request.path.rpartition("/")[2]
    nulls = {_NULLS[operation]: None} if operation in _NULLS else {}
    content_type = string_type(request) if operation == _LONG_POLL else JSON
    return Response(200, _to_json({"code": code, "msg": text, **nulls}), content_type)


def string_type(request: Request) -> str:
    """The content type of a string: JSON if the client prefers it to text, else text. The original uses any type that
    the client names; we do not, because a message shown as an HTML page could run scripts."""
    best, found = 0.0, TEXT
    for wish in request.headers.get("accept", "").split(","):
        kind, *parameters = (part.strip().lower() for part in wish.split(";"))
        weight = next((_weight(one[2:]) for one in parameters if one.startswith("q=")), 1.0)
        if kind in _STRING_TYPES and weight > best:
            best, found = weight, _STRING_TYPES[kind]
    return found


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def health(request: Request, well: bool) -> Response:
    status = 200 if well else 500
    return Response(status, _to_json({"code": status}), string_type(request))


def framework_page(status: int, path: str) -> Response:
    """Spring Boot's error page."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    page = {"timestamp": at, "status": status, "error": HTTPStatus(status).phrase, "path": path}
    return Response(status, _to_json(page))


# --- monitor pages


def data(value: Any) -> Response:
    return Response(200, _to_json({"code": 200, "data": value}))


def text(value: Any) -> Response:
    return Response(200, _to_json(value), TEXT)


def topic_info(topic: str, view: TopicView | None) -> dict[str, Any]:
    """The sizes of a topic's three queues; zeros if there is no such topic."""
    bands = view.bands if view is not None else (0,) * len(BANDS)
    return {
        "topic": topic,
        "waitingQueueSize": view.scheduled if view is not None else 0,
        "waitingQueueInfo": {f"sizeOf{name}": size for name, size in zip(BANDS, bands, strict=True)},
        "readyQueueSize": view.ready if view is not None else 0,
        "ackQueueSize": view.leased if view is not None else 0,
    }


def request_stats(counts: dict[str, Counts]) -> list[dict[str, Any]]:
    return [{"topic": topic, **one.calls()} for topic, one in counts.items()]


def pull_gaps(counts: dict[str, Counts]) -> list[dict[str, Any]]:
    """The time from trigger to pull."""
    return [
        {"topic": topic, "count": one.gaps, "avg": one.gap_sum_ms / one.gaps, "max": one.gap_max_ms}
        for topic, one in counts.items()
        if one.gaps
    ]


def ready_gaps(counts: dict[str, Counts]) -> list[dict[str, Any]]:
    """The time from trigger to ready. Always 0, because a message is ready as soon as it is due; nothing moves it."""
    return [
        {"topic": topic, "count": one.trigger_msg_ready, "avg": 0.0, "max": 0}
        for topic, one in counts.items()
        if one.trigger_msg_ready
    ]


def _max_retry(max_attempts: int | None) -> int:
    return MAX_INT if max_attempts is None else max_attempts - 1
