"""Answers as Spring Boot gives them: an empty 200, JSON, and its error object with the reason in `message`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...engine.errors import DuelineError, Unavailable
from ...push.discovery import TASK_KEY, Instance
from ..http import Request, Response

_STATUS = {
    "unauthorized": 401,
    "forbidden": 403,
    "egress_refused": 403,
    "not_found": 404,
    "no_route": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "rate_limited": 429,
    "store_down": 503,
    "store_replaced": 503,
    "loading": 503,
    "draining": 503,
    "unknown_outcome": 503,
    "store_full": 507,
    "internal": 500,
}
_PHRASES = {413: "Payload Too Large"}  # where Spring's phrase differs from Python's


def added() -> Response:
    """An empty body without a content type, as from a void handler."""
    return Response(200, b"", "")


def types(groups: Sequence[str]) -> Response:
    return Response(200, msgspec.json.encode(list(groups)))


def services(found: Mapping[str, Sequence[Instance]]) -> Response:
    """Only instances that name task types; a service without any has an empty list."""
    shown = {
        name: [
            {"ServiceInstance": _shown(name, one), "TaskType": one.metadata[TASK_KEY]}
            for one in instances
            if one.metadata.get(TASK_KEY)
        ]
        for name, instances in found.items()
    }
    return Response(200, msgspec.json.encode(shown))


def failed(request: Request, error: DuelineError) -> Response:
    status = _STATUS.get(error.code, 400)
    body = {
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "status": status,
        "error": _PHRASES.get(status) or HTTPStatus(status).phrase,
        "message": f"{error.field}: {error.message}" if error.field else error.message,
        "path": request.path,
    }
    headers = (("retry-after", str(error.retry_after_s)),) if isinstance(error, Unavailable) else ()
    return Response(status, msgspec.json.encode(body), headers=headers)


def _shown(name: str, instance: Instance) -> dict[str, Any]:
    url = urlsplit(instance.url)
    secure = url.scheme == "https"
    return {
        "serviceId": name.upper(),
        "instanceId": instance.id,
        "host": url.hostname,
        "port": url.port or (443 if secure else 80),
        "secure": secure,
        "scheme": url.scheme,
        "uri": instance.url,
        "metadata": instance.metadata,
    }
