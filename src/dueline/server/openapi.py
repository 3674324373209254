"""OpenAPI 3.1 of the native API, generated from the route table and from the request and answer types.

Nothing is described twice: shapes come from `dialects.native.requests` and `answers`, the rest from `OPERATIONS`.
`_ADDED` holds only what a type cannot express, such as "one of these two fields is required".
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, get_args

import msgspec

from ..dialects.native import answers as a
from ..dialects.native import requests as r
from ..dialects.native.encode import STATUS
from ..dialects.native.routes import OPERATIONS, Many, Operation

REF = "#/components/schemas/"
COMMON_ERRORS = ("invalid_field", "rate_limited", "store_down", "loading", "draining", "unknown_outcome")
BODY_ERRORS = (
    "bad_json",
    "unknown_field",
    "missing_field",
    "too_many_items",
    "body_too_large",
    "unsupported_media_type",
)

_PATH_PARAMETERS = {"topic": "The topic, percent-encoded.", "id": "The id of the job, percent-encoded."}
_PLAIN_NAME = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}
_EITHER_BODY = {"oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}]}
_ADDED: dict[str, dict[str, Any]] = {
    "SendJob": _EITHER_BODY,
    "Retry": {"oneOf": [{"required": ["ladder"]}, {"required": ["base_ms"]}]},
    "CancelJobs": {"oneOf": [{"required": ["ids"]}, {"required": ["filter"]}]},
    "ReviveJobs": {"oneOf": [{"required": ["ids"]}, {"required": ["filter"]}]},
    "PurgeJobs": {"oneOf": [{"required": ["ids"]}, {"required": ["filter"]}]},
    "PutPush": {"oneOf": [{"required": ["url"]}, {"required": ["service"]}]},
}


def document(version: str) -> bytes:
    """The whole document as JSON."""
    return msgspec.json.format(msgspec.json.encode(_document(version)), indent=1)


def _document(version: str) -> dict[str, Any]:
    schemas = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.pattern, {})[operation.method.lower()] = _operation(operation)
    paths |= _system_paths()
    groups = list(dict.fromkeys(operation.group for operation in OPERATIONS))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dueline",
            "version": version,
            "description": "A durable delay queue: send a job with a time, get it when the time comes. "
            "Times are milliseconds on the store's clock. Unknown fields are refused.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name} for name in groups],
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schemas() -> dict[str, Any]:
    _, found = msgspec.json.schema_components(list(_types()), ref_template=REF + "{name}")
    schemas: dict[str, Any] = dict(sorted(found.items()))
    for name, added in _ADDED.items():
        schemas[name] |= added
    for name in ("Job", "LeasedJob"):  # exactly one of the three is present
        required = [field for field in schemas[name]["required"] if field not in ("body", "body_base64", "items")]
        schemas[name]["required"] = required
    return schemas


def _types() -> Iterator[Any]:
    yield a.ErrorAnswer
    yield a.Failed
    for operation in OPERATIONS:
        for answer in operation.answers:
            yield from answer.results if isinstance(answer, Many) else (answer,)
        if operation.request is not None:
            yield from _alternatives(operation.request)


def _alternatives(request: Any) -> tuple[Any, ...]:
    return get_args(request) if request == r.SendJob | list[r.SendJob] else (request,)


def _schema(kind: Any) -> dict[str, Any]:
    if isinstance(kind, Many):
        item = {"anyOf": [_schema(one) for one in (*kind.results, a.Failed)]}
        return {
            "type": "object",
            "description": "Results in the order of the request.",
            "properties": {"results": {"type": "array", "items": item}},
            "required": ["results"],
        }
    if kind == list[r.SendJob]:
        return {"type": "array", "items": _schema(r.SendJob), "maxItems": 1000}
    return {"$ref": REF + kind.__name__}


def _one_of(kinds: tuple[Any, ...]) -> dict[str, Any]:
    return _schema(kinds[0]) if len(kinds) == 1 else {"anyOf": [_schema(kind) for kind in kinds]}


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), _namespace_parameter()],
        "responses": _responses(operation),
    }
    if operation.request is not None:
        content: dict[str, Any] = {"schema": _one_of(_alternatives(operation.request))}
        if operation.example is not None:
            content["example"] = operation.example
        described["requestBody"] = {
            "required": not operation.body_optional,
            "content": {"application/json": content},
        }
    return described


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in operation.success:
        content = {"application/json": {"schema": _one_of(operation.answers)}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    codes = [*operation.errors, *COMMON_ERRORS, *(BODY_ERRORS if operation.request is not None else ())]
    if operation.query is not None:
        codes.append("unknown_field")
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(STATUS[code], []).append(code)
    for status, names in sorted(by_status.items()):
        responses[str(status)] = _error_response(status, names)
    responses["default"] = _error_response(0, ["bad_request", "request_timeout", "url_too_long", "headers_too_large"])
    return responses


def _error_response(status: int, codes: list[str]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": " | ".join(sorted(codes)),
        "content": {"application/json": {"schema": _schema(a.ErrorAnswer)}},
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds."}}
    return response


def _path_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for name, description in _PATH_PARAMETERS.items():
        if f"{{{name}}}" in operation.pattern:
            # Existing names may come from another dialect; names that a native call creates are plain.
            makes = operation.name in ("send", "put_topic", "put_push")
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "description": description,
                "schema": _PLAIN_NAME if makes else {"type": "string", "minLength": 1, "maxLength": 512},
                "example": "orders" if name == "topic" else "order-1042",
            }


def _query_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    if operation.query is None:
        return
    (reference,), components = msgspec.json.schema_components([operation.query], ref_template="{name}")
    for name, schema in components[reference["$ref"]]["properties"].items():
        # A query string cannot express null: a parameter is either present or absent.
        kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
        default = schema.get("default")
        plain = {key: value for key, value in kinds[0].items() if key != "description"}
        if default is not None:
            plain["default"] = default
        yield {"name": name, "in": "query", "required": False, "schema": plain}


def _namespace_parameter() -> dict[str, Any]:
    return {
        "name": "Dueline-Namespace",
        "in": "header",
        "required": False,
        "description": 'The namespace, "default" when missing.',
        "schema": _PLAIN_NAME,
    }


def _system_paths() -> dict[str, Any]:
    def get(name: str, summary: str, responses: dict[str, str], media: str = "application/json") -> dict[str, Any]:
        described = {
            status: {"description": text, "content": {media: {"schema": {}}}} for status, text in responses.items()
        }
        return {"get": {"operationId": name, "summary": summary, "tags": ["Server"], "responses": described}}

    return {
        "/healthz": get("healthz", "The process lives", {"200": "alive"}),
        "/readyz": get(
            "readyz",
            "Sends and pulls are taken",
            {"200": "ready, perhaps with warnings", "503": "not ready, with reasons"},
        ),
        "/metrics": get("metrics", "Metrics for Prometheus", {"200": "the text format"}, "text/plain"),
    }
