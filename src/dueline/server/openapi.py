"""OpenAPI 3.1 of the native API, generated from the table of operations and from the request and answer types.

Nothing is described twice: shapes come from `api.requests` and `api.answers`, the rest from `OPERATIONS`.
`_ADDED` holds only what a type cannot express, such as "one of these two fields is required".
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from ..api import answers as a
from ..api import history_answers, live_answers, overview_answers, schedule_answers
from ..api import requests as r
from ..api.operations import ACKED, OPERATIONS, Many, Operation, Shape
from ..api.statuses import STATUS
from ..bounds import MAX_ITEMS
from ..rights import Right

ANSWER_MODULES = tuple(one.__name__ for one in (a, history_answers, live_answers, overview_answers, schedule_answers))
REF = "#/components/schemas/"
COMMON_ERRORS = ("invalid_field", "rate_limited", "store_down", "loading", "draining", "unknown_outcome")
TOKEN_ERRORS = ("unauthorized", "forbidden")
TOKEN = [{"token": list[str]()}, dict[str, list[str]]()]  # the empty one: a server without tokens needs none
BODY_ERRORS = (
    "bad_json",
    "unknown_field",
    "missing_field",
    "too_many_items",
    "body_too_large",
    "unsupported_media_type",
)

_PATH_PARAMETERS = {
    "topic": "The topic, percent-encoded.",
    "id": "The id of the job, percent-encoded.",
    "token": "The id of the token.",
    "name": "The name of the schedule or of the worker.",
}
_PATH_EXAMPLES = {"topic": "orders", "id": "order-1042", "token": "5d41402abc4b", "name": "daily-report"}
_PLAIN_NAME = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}
_EITHER_BODY = {"oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}]}
_ADDED: dict[str, dict[str, Any]] = {
    "NewJob": _EITHER_BODY,
    "NewTemplate": _EITHER_BODY,
    "PutSchedule": {"oneOf": [{"required": ["cron"]}, {"required": ["every"]}]},
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
        "components": {"schemas": schemas, "securitySchemes": {"token": _token_scheme()}},
    }


def _schemas() -> dict[str, Any]:
    shapes = [answer for answer in _answers() if isinstance(answer, Shape)]
    kinds = [answer.kind if isinstance(answer, Shape) else answer for answer in _answers()]
    requests = [kind for one in OPERATIONS if one.request is not None for kind in _alternatives(one.request)]
    written = [*kinds, a.ErrorAnswer, a.Failed, a.Policy, a.Breaker]
    _, schemas = msgspec.json.schema_components([*written, *requests], ref_template=REF + "{name}")
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
    for name, added in _ADDED.items():
        schemas[name] |= added
    for kind in vars(a).values():
        if getattr(kind, "__name__", None) in schemas and kind.__module__ in ANSWER_MODULES:
            _as_written(kind, schemas[kind.__name__])
    schemas["Topic"]["properties"]["policy"] = _schema(a.Policy)
    schemas["Push"]["properties"]["breaker"] = {"anyOf": [_schema(a.Breaker), {"type": "null"}]}
    schemas["LeasedJobs"]["properties"]["acked"]["items"] = _schema(Many((ACKED,)))["properties"]["results"]["items"]
    schemas["LeasedJobs"]["required"] = ["jobs"]  # `acked` only if the pull had acks
    for shape in shapes:
        schemas[shape.name] = _part(schemas[shape.kind.__name__], shape)
    for shape in shapes:
        schemas.pop(shape.kind.__name__, None)
    return dict(sorted(schemas.items()))


def _answers() -> Iterator[Any]:
    for operation in OPERATIONS:
        for answer in operation.answers:
            yield from answer.results if isinstance(answer, Many) else (answer,)


def _as_written(kind: type[msgspec.Struct], schema: dict[str, Any]) -> None:
    """Make every field of an answer required, except those that may be UNSET: a server writes all others, even those
    that are optional for a client."""
    fields = msgspec.structs.fields(kind)
    schema["required"] = [field.name for field in fields if field.default is not msgspec.UNSET]
    for described in schema["properties"].values():
        described.pop("default", None)


def _part(schema: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """The part of an answer that one operation uses."""
    properties = {name: _not_null(schema["properties"][name]) for name in shape.fields}
    if shape.result is not None:
        properties["result"] = {"enum": [shape.result]}
    return {
        "title": shape.name,
        "description": schema["description"],
        "type": "object",
        "properties": properties,
        "required": [name for name in shape.fields if name != "complete"],
    }


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    return kinds[0]


def _alternatives(request: Any) -> tuple[Any, ...]:
    return (r.NewJob, list[r.NewJob]) if request == r.NewJob | r.NewJobs else (request,)


def _schema(kind: Any) -> dict[str, Any]:
    if isinstance(kind, Many):
        item = {"anyOf": [_schema(one) for one in (*kind.results, a.Failed)]}
        return {
            "type": "object",
            "description": "Results in the order of the request.",
            "properties": {"results": {"type": "array", "items": item}},
            "required": ["results"],
        }
    if kind == list[r.NewJob]:
        return {"type": "array", "items": _schema(r.NewJob), "maxItems": MAX_ITEMS}
    return {"$ref": REF + (kind.name if isinstance(kind, Shape) else kind.__name__)}


def _one_of(kinds: tuple[Any, ...]) -> dict[str, Any]:
    return _schema(kinds[0]) if len(kinds) == 1 else {"anyOf": [_schema(kind) for kind in kinds]}


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), _namespace_parameter()],
        "responses": _responses(operation),
        "security": [] if operation.right is Right.NONE else TOKEN,
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
        schema = {"schema": _one_of(operation.answers)}
        content = {media: schema if media == "application/json" else {"schema": {}} for media in operation.media}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    codes = [*operation.errors, *COMMON_ERRORS, *(BODY_ERRORS if operation.request is not None else ())]
    if operation.right is not Right.NONE:
        codes.extend(TOKEN_ERRORS)
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
            makes = operation.name in ("send", "put_topic", "put_push", "put_schedule")
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "description": description,
                "schema": _PLAIN_NAME if makes else {"type": "string", "minLength": 1, "maxLength": 512},
                "example": _PATH_EXAMPLES[name],
            }


def _query_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    if operation.query is None:
        return
    (reference,), components = msgspec.json.schema_components([operation.query], ref_template="{name}")
    for name, schema in components[reference["$ref"]]["properties"].items():
        # A query string cannot express null: a parameter is either present or absent.
        default = schema.get("default")
        plain = {key: value for key, value in _not_null(schema).items() if key != "description"}
        if default is not None:
            plain["default"] = default
        joined = {"style": "form", "explode": name == "topic"} if plain.get("type") == "array" else {}
        yield {"name": name, "in": "query", "required": False, **joined, "schema": plain}


def _namespace_parameter() -> dict[str, Any]:
    return {
        "name": "Dueline-Namespace",
        "in": "header",
        "required": False,
        "description": 'The namespace, "default" when missing.',
        "schema": _PLAIN_NAME,
    }


def _token_scheme() -> dict[str, str]:
    description = 'A token, if the server checks them (server.auth = "tokens"). Each call needs a right.'
    return {"type": "http", "scheme": "bearer", "description": description}


def _system_paths() -> dict[str, Any]:
    def get(
        name: str, summary: str, responses: dict[str, str], media: str = "application/json", security: Any = ()
    ) -> dict[str, Any]:
        described = {
            status: {"description": text, "content": {media: {"schema": {}}}} for status, text in responses.items()
        }
        if security:
            described |= {str(STATUS[code]): _error_response(STATUS[code], [code]) for code in TOKEN_ERRORS}
        operation = {"operationId": name, "summary": summary, "tags": ["Server"], "responses": described}
        return {"get": {**operation, "security": list(security)}}

    return {
        "/healthz": get("healthz", "The process is alive", {"200": "alive"}),
        "/readyz": get(
            "readyz",
            "Sends and pulls are accepted",
            {"200": "ready, perhaps with warnings", "503": "not ready, with reasons"},
        ),
        "/metrics": get("metrics", "Metrics for Prometheus", {"200": "the text format"}, "text/plain", TOKEN),
    }
