"""The fields of a log line that identify its request. No I/O."""

from __future__ import annotations

import re

from ..dialects.http import Request, Route

MAX_ID_CHARS = 128

_PLACEHOLDER = re.compile(r"\{(\w+)\*?\}")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def request_fields(route: Route, request: Request) -> dict[str, str]:
    """The route, the names in the path (such as topic and id), the caller's X-Request-Id, the id of its trace."""
    fields = {"route": route.name, **dict(zip(_PLACEHOLDER.findall(route.pattern), request.params, strict=False))}
    if request_id := request.headers.get("x-request-id"):
        fields["request_id"] = request_id[:MAX_ID_CHARS]
    if trace := _TRACE.match(request.headers.get("traceparent", "")):
        fields["trace_id"] = trace[1]
    return fields
