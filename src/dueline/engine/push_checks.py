"""Checks the fields of a push target. No I/O. The egress guard decides which addresses may be called (push.egress)."""

from __future__ import annotations

import math
import re

from ..bounds import MAX_CONCURRENCY, MAX_RATE_PER_S, MAX_SECRETS, MAX_SUCCESS, MAX_TIMEOUT_MS, MAX_URL_CHARS
from .checks import Checks, at_most, within
from .errors import InvalidField
from .push_target import PushTarget

LEAST_RATE_PER_S = 0.001
MAX_SECRET_CHARS = 256
DAY_MS = 86_400_000

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}", re.ASCII)
_URL = re.compile(r"https?://[^/?#\s][^\s\x00-\x1f\x7f]*", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


def check_target(target: PushTarget, checks: Checks) -> None:
    """Raise InvalidField for the first field that is invalid, named as in the API."""
    _check_address(target)
    if not _TOKEN.fullmatch(target.method) or target.method.upper() == "CONNECT":
        raise InvalidField("is not an HTTP method that can be called", "method")
    checks.headers(target.headers)
    if target.timeout_ms is not None:
        within(target.timeout_ms, 1, MAX_TIMEOUT_MS, "timeout_ms")
    within(target.concurrency, 1, MAX_CONCURRENCY, "concurrency")
    rate = target.rate_per_s
    if not math.isfinite(rate) or (rate and not LEAST_RATE_PER_S <= rate <= MAX_RATE_PER_S):
        raise InvalidField(f"must be 0 (no limit) or {LEAST_RATE_PER_S} to {MAX_RATE_PER_S:.0f}", "rate_per_s")
    at_most(MAX_SUCCESS, target.success, "success")
    for status in target.success:
        within(status, 100, 599, "success")
    checks.retry(target.retry)
    if target.breaker is not None:
        within(target.breaker.failures, 1, 10_000, "breaker.failures")
        within(target.breaker.open_ms, 1, DAY_MS, "breaker.open_ms")
    at_most(MAX_SECRETS, target.secrets, "secrets")
    for secret in target.secrets:
        if not (secret.isascii() and secret.isprintable() and 1 <= len(secret) <= MAX_SECRET_CHARS):
            raise InvalidField(f"must each have 1 to {MAX_SECRET_CHARS} printable ASCII characters", "secrets")
    if not _NAME.fullmatch(target.courier):
        raise InvalidField("is not the name of a courier", "courier")


def _check_address(target: PushTarget) -> None:
    if target.courier == "http" and (target.url is None) == (target.service is None):
        raise InvalidField("give exactly one of url and service", "url" if target.service is None else "service")
    if target.url is not None:
        check_url(target.url, "url")
    if target.service is not None and not _NAME.fullmatch(target.service):
        raise InvalidField("is not the name of a service (A-Z a-z 0-9 . _ : -, at most 128)", "service")


def check_url(url: str, field: str) -> None:
    """Whether the URL is well-formed. Whether it may be called is decided by the egress guard."""
    if len(url) > MAX_URL_CHARS:
        raise InvalidField(f"must have at most {MAX_URL_CHARS} characters", field)
    if not _URL.fullmatch(url):
        raise InvalidField("is not an http or https URL", field)


def check_spread(target: PushTarget, partitions: int, topic: str | None = None) -> None:
    """Each partition needs a concurrency of at least 1; old partitions count, too. `topic`: the one to name."""
    if target.concurrency < partitions:
        which = "the topic" if topic is None else f'the topic "{topic}"'
        raise InvalidField(
            f"must be at least {partitions}: {which} has {partitions} partitions and each needs one", "concurrency"
        )
