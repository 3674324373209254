"""From camellia's forms to engine commands. No I/O.

This module checks what camellia's documentation requires (empty topic, msg, msgId: code 400). It also checks the names
of a send, so that errors use camellia's parameter names. Other operations treat a name that we cannot store as unknown.
Numbers that are too large are limited to what we support.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...engine import commands
from ...engine.errors import DuelineError, InvalidField
from ...engine.job import BodyKind
from ...engine.limits import LAST_MS, Limits, check_name, is_name
from ...engine.policy import AT_ONCE, TEN_YEARS_MS
from ...engine.store import OnConflict
from ..http import Request
from .form import INT, LONG, Form
from .settings import MAX_FORM_BYTES, CamelliaSettings

MAX_LONG = (1 << 63) - 1


class TimeOverflow(DuelineError):
    """The message would expire after the last moment that a long can hold."""

    code = "invalid_field"


class SendMsg(msgspec.Struct, frozen=True):
    """A send, and the values that its answer repeats."""

    topic: str
    msg: str
    delay_ms: int
    ttl_ms: int
    max_attempts: int | None
    command: commands.Send


class MsgRef(msgspec.Struct, frozen=True):
    """One message of a topic. `flag` is `ack` or `release`."""

    topic: str
    msg_id: str
    flag: bool = False

    def can_be(self) -> bool:
        """Whether such a message can exist."""
        return is_name(self.topic) and is_name(self.msg_id)


def send_msg(request: Request, settings: CamelliaSettings, limits: Limits, now_ms: Callable[[], int]) -> SendMsg:
    """Raises TimeOverflow, which the original answers as a server error (code 500), not as an invalid parameter."""
    form = Form(request)
    topic, msg, msg_id = form.text("topic"), form.text("msg"), form.optional_text("msgId")
    delay_ms = max(0, form.number("delayMillis", LONG))
    wanted_ttl_ms = form.optional_number("ttlMillis", LONG) or 0
    wanted_retry = form.optional_number("maxRetry", INT)
    _filled(topic, "topic")
    _filled(msg, "msg")
    check_name(topic, "topic")
    if msg_id:
        check_name(msg_id, "msgId")
    ttl_ms = min(wanted_ttl_ms, TEN_YEARS_MS) if wanted_ttl_ms > 0 else settings.ttl_ms
    if delay_ms + ttl_ms > MAX_LONG - LAST_MS and now_ms() + delay_ms + ttl_ms > MAX_LONG:
        raise TimeOverflow(field="delayMillis")
    retry = settings.max_retry if wanted_retry is None or wanted_retry < 0 else wanted_retry
    max_attempts = retry + 1 if retry < limits.max_attempts else None
    command = commands.Send(
        msg_id or None,
        msg.encode(),
        BodyKind.TEXT,
        delay_ms,
        ttl_ms=ttl_ms,
        max_attempts=max_attempts,
        retry=AT_ONCE,
        on_conflict=OnConflict.KEEP,
        on_ended=OnConflict.REPLACE,
        on_overdue=OnConflict.REPLACE,
        retain_ms=settings.retain_ms,
        dead_retain_ms=settings.retain_ms,
        keep_body=True,
        max_body_bytes=MAX_FORM_BYTES,
        any_delay=True,
    )
    return SendMsg(topic, msg, delay_ms, ttl_ms, max_attempts, command)


def pull_msg(request: Request, settings: CamelliaSettings, limits: Limits, waits: bool) -> commands.Pull:
    form = Form(request)
    topic = form.text("topic")
    lease_ms = _positive(form.optional_number("ackTimeoutMillis", LONG), settings.ack_timeout_ms)
    batch = _positive(form.optional_number("batch", INT), 1)
    wait_ms = _positive(form.optional_number("longPollingTimeoutMillis", LONG), settings.long_poll_ms) if waits else 0
    _filled(topic, "topic")
    return commands.Pull(
        settings.namespace,
        (topic,),
        min(batch, limits.max_pull),
        min(lease_ms, limits.max_lease_ms),
        min(wait_ms, limits.max_wait_ms),
    )


def msg_ref(request: Request, flag: str | None = None, default: bool = False) -> MsgRef:
    """topic and msgId, and the boolean parameter named by `flag`."""
    form = Form(request)
    topic, msg_id = form.text("topic"), form.text("msgId")
    truth = form.truth(flag, default) if flag is not None else False
    _filled(topic, "topic")
    _filled(msg_id, "msgId")
    return MsgRef(topic, msg_id, truth)


def topic_of(request: Request) -> str:
    return Form(request).text("topic")


def _positive(value: int | None, default: int) -> int:
    return default if value is None or value <= 0 else value


def _filled(value: str, name: str) -> None:
    if not value:
        raise InvalidField(f"{name} is empty", name)
