"""HTTP as a handler sees it: a request in, a response out. Handlers know neither ASGI nor sockets.

`server` provides the transport: it builds a Request, finds the route, awaits the handler and writes the Response. If a
handler raises a DuelineError, its dialect's `failed` builds the answer. A handler is cancelled when the client is gone.
The routes that every job takes have a fast path instead, their line (`Line`): a callback answers, nothing is awaited.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from enum import Enum, Flag
from functools import lru_cache
from typing import Protocol, runtime_checkable

import msgspec

from ..engine.audit import AuditNote
from ..engine.completion import PendingCall, poll
from ..engine.errors import DuelineError, Forbidden
from ..engine.queue_limit import QueueLimit
from ..rights import EVERYTHING, Grant, Right


class Request(msgspec.Struct):
    """One complete request. `path` and `query` are percent-encoded, as on the wire; header names are lower case. It
    never contains a token: that was checked at the head, and `grant` is what it allows.

    The server has checked the right and the namespace. A handler that has decoded a topic must check it, before it
    calls the engine."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    params: tuple[str, ...] = ()  # the percent-decoded {placeholders} of the route, in order
    grant: Grant = EVERYTHING
    address: str = ""  # the host that the client calls from; empty if that is unknown
    note: AuditNote | None = None  # for the audit log; set by the server if the route is audited
    queue: QueueLimit | None = None  # set by the server if the caller's token has a limit of queued jobs
    held: int = 0  # jobs of this call that count for it

    def describe(self, topic: str = "", ids: Sequence[str] | None = None, command: str = "", **details: object) -> None:
        """Say what this call is about, if it is audited. Never pass bodies, headers or secrets."""
        note = self.note
        if note is None:
            return
        note.topic, note.command = topic or note.topic, command or note.command
        if ids is not None:
            note.name_jobs(ids)
        note.details.update(details)

    def check_topic(self, topic: str) -> None:
        """Raises Forbidden."""
        check_topic(self.grant, topic)

    def check_all_topics(self) -> None:
        """Check a call that names only a job's id, or that shows all topics. Raises Forbidden."""
        check_all_topics(self.grant)

    def check_own_id(self, namespace_ids: bool) -> None:
        """Check a send with an id that the caller chose. Raises Forbidden."""
        check_own_id(self.grant, namespace_ids)

    def hold_jobs(self, jobs: int) -> None:
        """Count this call's jobs towards `max_queued_jobs` until it is answered. Call it if the call has many jobs, or
        if its body names the command; never for pulls, acks, releases and extends. Raises QuotaExceeded."""
        if self.queue is not None:
            self.held = self.queue.hold(jobs, self.held)

    def check_right(self, right: Right) -> None:
        """Check a right that depends on the body. Raises Forbidden."""
        check_right(self.grant, right)


class Stream(Protocol):
    """A body that comes in pieces."""

    def pieces(self) -> AsyncGenerator[bytes]: ...
    def close(self) -> None:
        """Called at the end in any case, even if no piece was taken."""


class Response(msgspec.Struct):
    """One answer. `undelivered` is called once, in the event loop, if it could not be written to the client. `stream`:
    the body comes in pieces, as long as the client stays; only a route that parks may answer so."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    undelivered: Callable[[], None] | None = None
    stream: Stream | None = None


Handler = Callable[[Request], Awaitable[Response]]

Answer = Callable[[Response | BaseException], None]
"""answer(response), or answer(error)."""

Line = Callable[[Request, Answer], PendingCall | None]
"""line(request, answer): answers a request without a coroutine. A refusal may also be raised. If the route parks, it
returns what the server cancels when the client is gone."""

LineMaker = Callable[[Request], Line]
"""Decides once what a head says: whose call it is, which topic, what is allowed. The line that it makes answers every
request with this head. Raises the error with which such requests are refused."""


def on_line(make: LineMaker) -> Handler:
    """The handler of a route with a line, for callers that await it."""

    async def handle(request: Request) -> Response:
        return await poll(make(request), request)

    return handle


class TokenPlace(Flag):
    """Where a request may carry its token."""

    NOWHERE = 0
    HEADER = 1  # Authorization
    PATH = 2  # in front of the path, for clients that can set an address but no header
    ANYWHERE = HEADER | PATH
    COOKIE = 4  # of someone who is logged in at the dashboard
    PAGES = HEADER | COOKIE  # what the dashboard calls


class Browser(Enum):
    """Which browser requests a route accepts (server.browser)."""

    OWN_PAGES = "own pages"  # from pages of this server and of server.origins
    ANY_LINK = "any link"  # for people: links on other sites may lead here, too
    REFUSED = "refused"  # changes state on a GET


PUBLIC = (Right.NONE, TokenPlace.NOWHERE)


class Route(msgspec.Struct, frozen=True):
    """One line of a dialect's table. Method "*": any method. Pattern segments in braces are placeholders."""

    method: str
    pattern: str
    handler: Handler
    name: str  # the label in metrics and the operation id in OpenAPI
    right: Right | Mapping[str, Right]  # a mapping if the body names the command: command -> right
    token: TokenPlace
    parks: bool = False  # may wait long (a long poll): cancelled when the client disconnects; others run to completion
    max_body_bytes: int | None = None  # None: the server's limit; a larger body is answered with `failed(BodyTooLarge)`
    always: bool = False  # served even while the server is starting without its store
    browser: Browser = Browser.OWN_PAGES
    audited: bool | Mapping[str, str] = False  # in the audit log; a mapping if the body names the command: -> action
    is_health: bool = False  # answered even when every limit is reached
    taskless: bool = False  # called often: may run outside a task, so it must not use asyncio.timeout and the like
    line: LineMaker | None = None  # the calls of every job: `handler` is on_line(line), and the route is not audited

    @property
    def at_once(self) -> bool:
        """Whether a single request needs no task."""
        return self.taskless or self.line is not None


def line_route(
    method: str,
    pattern: str,
    line: Line,
    name: str,
    right: Right,
    token: TokenPlace,
    parks: bool = False,
    max_body_bytes: int | None = None,
) -> Route:
    """A route with one line for all heads, because only the body says what a request is about."""

    def make(_: Request) -> Line:
        return line

    handler = on_line(make)
    return Route(method, pattern, handler, name, right, token, parks, max_body_bytes, line=make)


class RouteOwner(Protocol):
    """Routes with one format of errors: a dialect (dialects.contract), or the server itself. `namespace` is what its
    calls are about; None: the request names it; ALL: the whole server."""

    @property
    def namespace(self) -> str | None: ...

    def routes(self) -> Sequence[Route]: ...

    def failed(self, request: Request, error: DuelineError) -> Response:
        """The answer for a refusal."""
        ...


@runtime_checkable
class SpaceOwner(RouteOwner, Protocol):
    """A dialect that answers all paths below `space`, even those that do not exist: its `failed` gets NoRoute and
    MethodNotAllowed for them. An empty `space` means that this applies only to a listener of its own."""

    space: str


@runtime_checkable
class PathSpeller(RouteOwner, Protocol):
    """A dialect whose original accepts other spellings of a path: doubled slashes, a trailing slash."""

    def respelled(self, path: str) -> str:
        """The path that the original looks up for this one. Called for paths without a route."""
        ...

    def moved(self, request: Request, path: str) -> Response | None:
        """A redirect to the canonical path, or None to answer as if the request had been sent there."""
        ...


class NotGranted(Forbidden):
    """The token is valid, but not for this call. `grant` is what it is valid for."""

    def __init__(self, message: str, grant: Grant) -> None:
        super().__init__(message)
        self.grant = grant


def note_path(note: AuditNote, pattern: str, params: tuple[str, ...]) -> None:
    """Note what a path names: the topic, and the id of a job or of what else the call is about. The rest of a path
    ({rest*}) may be secret, so it is not noted."""
    for name, value in zip(_placeholders(pattern), params, strict=False):
        if name == "topic":
            note.topic = value
        else:
            note.name_jobs([value])


@lru_cache(256)
def _placeholders(pattern: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", pattern)


def check_topic(grant: Grant, topic: str) -> None:
    """Raises Forbidden."""
    if not grant.covers(topic):
        raise Forbidden("This token is not valid for this topic.", "topic")


def check_all_topics(grant: Grant) -> None:
    """Raises Forbidden."""
    if not grant.covers_all:
        raise Forbidden('This call names no topic, so it needs a token that is valid for every topic ("*").')


def check_own_id(grant: Grant, namespace_ids: bool) -> None:
    """Check a send with an id that the caller chose. With `namespace_ids` (engine.has_namespace_ids) it may move or
    reveal a job of any topic. Raises Forbidden."""
    if namespace_ids and not grant.covers_all:
        raise Forbidden(
            "Ids are shared by all topics of this namespace, so a send with an id needs a token that is valid for "
            'every topic ("*").',
            "id",
        )


def check_shared_partitions(grant: Grant) -> None:
    """Check a change of partitions that all topics of a namespace share. Raises Forbidden."""
    if not grant.covers_all:
        raise Forbidden(
            "The topics of this namespace share their partitions, so changing them needs a token that is valid for "
            'every topic ("*").',
            "partitions",
        )


def check_right(grant: Grant, right: Right) -> None:
    """Raises Forbidden."""
    if not grant.allows(right):
        raise Forbidden(f"This call needs the right {right}, which this token does not have.")


def plain_error(
    status: int, code: str, message: str, field: str | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """An error in the native shape, for refusals that belong to no dialect (no route, invalid HTTP)."""
    body = msgspec.json.encode({"error": {"code": code, "message": message, "field": field}})
    return Response(status, body, headers=headers)
