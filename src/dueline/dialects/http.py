"""What a handler sees of HTTP: a request in, a response out. It knows neither ASGI nor sockets.

The transport is a choice of `server`: it builds a Request, finds the route, awaits the handler, writes the Response.
A handler that raises a DuelineError is answered by its dialect's `failed`. A cancelled handler: the client is gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from ..engine.errors import DuelineError


class Request(msgspec.Struct):
    """One request, whole. `path` and `query` are as on the wire (percent-escaped); header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    params: tuple[str, ...] = ()  # the percent-decoded {placeholders} of the route, in order
    namespace: str | None = None  # fixed by the caller's token, if there is one


class Response(msgspec.Struct):
    """One answer. `undelivered` is called (once, in the event loop) when it could not be written to the client."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    undelivered: Callable[[], None] | None = None


Handler = Callable[[Request], Awaitable[Response]]


class Route(msgspec.Struct, frozen=True):
    """One line of a dialect's table. method "*" = any verb. Pattern segments in braces are placeholders."""

    method: str
    pattern: str
    handler: Handler
    name: str  # the label in metrics and the operation id in OpenAPI
    parks: bool = False  # may wait long (a long poll): cancelled when the client goes away; others run to their end
    max_body_bytes: int | None = None  # None: the server's limit; more is answered with `failed(BodyTooLarge)`
    always: bool = False  # also while the server is starting and its store is not there
    page: bool = False  # for people: a link on any other site may lead here
    programs_only: bool = False  # changes something although it takes a GET: refused to browsers
    taskless: bool = False  # asked often: may be run outside a task, so it must not use asyncio.timeout and the like


class Dialect(Protocol):
    """One wire protocol. `routes` is its whole surface on one page."""

    name: str

    def routes(self) -> Sequence[Route]: ...

    def failed(self, request: Request, error: DuelineError) -> Response:
        """The answer for a refusal, in this dialect's words."""
        ...


@runtime_checkable
class SpaceOwner(Dialect, Protocol):
    """A dialect that has words for all paths below `space`, also for those that do not exist: its `failed` is asked
    with NoRoute and MethodNotAllowed there. An empty space: only a listener of its own, if it has one."""

    space: str


@runtime_checkable
class PathSpeller(Dialect, Protocol):
    """A dialect whose original knows other spellings of a path: doubled slashes, a slash at the end."""

    def respelled(self, path: str) -> str:
        """The path that the original looks up for this one. Called for paths that nobody claims."""
        ...

    def moved(self, request: Request, path: str) -> Response | None:
        """The redirect to the path that was meant; None: the request is answered as if it had been sent there."""
        ...


def plain_error(
    status: int, code: str, message: str, field: str | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """The one error shape of the product, for refusals that no dialect has words for (no route, broken HTTP)."""
    body = msgspec.json.encode({"error": {"code": code, "message": message, "field": field}})
    return Response(status, body, headers=headers)
