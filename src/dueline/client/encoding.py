"""A call as an HTTP request: method, target, headers and body. No I/O."""

from __future__ import annotations

import re
from typing import Any, cast
from urllib.parse import quote, urlencode

import msgspec

from ..api.operations import BY_NAME, Operation
from .calls import Call

NAMESPACE_HEADER = "Dueline-Namespace"

_PLACEHOLDER = re.compile(r"\{\w+\}")
_OPERATIONS: dict[str, tuple[Operation, str]] = {
    name: (one, _PLACEHOLDER.sub("{}", one.pattern)) for name, one in BY_NAME.items()
}


def http_request(call: Call[Any]) -> tuple[str, str, bytes | None]:
    """(method, path with query, body) of a call."""
    operation, pattern = _OPERATIONS[call.operation]
    path = pattern.format(*(quote(param, safe="") for param in call.params))
    if operation.query is None:
        return operation.method, path, None if call.request is None else msgspec.json.encode(call.request)
    values: dict[str, Any] = msgspec.to_builtins(call.request)
    flags = {name: int(value) for name, value in values.items() if isinstance(value, bool)}
    lists = {name: ",".join(map(str, cast(list[Any], value))) for name, value in values.items() if type(value) is list}
    topics = lists.pop("topic", None) and values.pop("topic")
    query = urlencode(values | flags | lists)
    if topics:
        query = "&".join(filter(None, (query, urlencode({"topic": topics}, doseq=True))))
    return operation.method, f"{path}?{query}" if query else path, None


def headers_of(body: bytes | None, namespace: str | None, token: str | None) -> dict[str, str]:
    """The request's own headers; the client adds those of the connection."""
    headers = {"Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if namespace:
        headers[NAMESPACE_HEADER] = namespace
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers
