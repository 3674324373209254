"""Which handler answers a request, and what the answer is when a handler refuses or fails.

    (method, path) --find--> Found (route, dialect, params) --respond--> Response

One table is built from the routes of all dialects. Paths without placeholders are one dictionary look-up; all others
walk a tree of segments. A placeholder matches one segment, percent-decoded. A placeholder with a star, {rest*}, comes
last and matches the rest of the path, which must not be empty. Bytes that are not UTF-8 are refused with the error of
the route's dialect. Two dialects must not claim the same method and path. An unclaimed path may be another spelling of
a known one (PathSpeller). Otherwise the dialect that owns this part of the paths answers (SpaceOwner), or the router.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from ..dialects.http import (
    PUBLIC,
    Handler,
    NotGranted,
    PathSpeller,
    Request,
    Response,
    Route,
    RouteOwner,
    SpaceOwner,
    TokenPlace,
    note_path,
    plain_error,
)
from ..dialects.native.wire import DEFAULT_NAMESPACE
from ..engine.audit import GONE, Audit, AuditNote
from ..engine.errors import (
    BodyTooLarge,
    DuelineError,
    Forbidden,
    InvalidField,
    Loading,
    MethodNotAllowed,
    NoRoute,
    RateLimited,
    Unauthorized,
)
from ..engine.outcomes import Actor, begin_call
from ..engine.queue_limit import QueueLimit
from ..event_log import EventLog
from ..rights import ALL, Right
from .request_fields import request_fields

log = EventLog("dueline.server")

Guard = Callable[[Request, Route], Awaitable[None] | None]
"""Called before every handler. May raise a DuelineError such as Loading. If it returns an awaitable, that is awaited
before the handler is called, and may raise the same."""

RECENT_TARGETS = 4096
RECENT_BYTES = 1 << 20  # of their URLs; the cache stores each target three times


class Found(msgspec.Struct, frozen=True):
    """The result of `find`. There always is one: "no such path" and "method not allowed" are routes, too."""

    route: Route
    dialect: RouteOwner | None  # None: a route of the router itself
    params: tuple[str, ...] = ()
    with_body: Found | None = None  # who answers instead if the request has a body

    @property
    def is_limited(self) -> bool:
        """Whether calls count for the limits of their caller. Health and metrics, and what is public, do not."""
        return self.dialect is not None and self.dialect.namespace != ALL and self.route.right is not Right.NONE

    def of(self, headers: Mapping[bytes, bytes]) -> Found:
        """This result, or `with_body` if the request has a body."""
        if self.with_body is None:
            return self
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        return self.with_body if has_body else self


Target = tuple[str, str, str, Found]


class _Node:
    """One segment of the tree: literal children, a placeholder child, a {rest*} child, methods that end here."""

    __slots__ = ("literal", "methods", "placeholder", "rest")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.placeholder: _Node | None = None
        self.rest: _Node | None = None
        self.methods: dict[str, tuple[Route, RouteOwner]] = {}


class Router:
    """All routes of a listener. `respond` raises nothing but CancelledError. `owner` answers all unclaimed paths.
    `token_places`: where the routes of a dialect may carry a token, if that is less than they say. `read_only`: a
    login at the dashboard changes nothing."""

    def __init__(
        self,
        dialects: Sequence[RouteOwner],
        *,
        guard: Guard | None = None,
        owner: SpaceOwner | None = None,
        audit: Audit | None = None,
        token_places: Mapping[RouteOwner, TokenPlace] = MappingProxyType({}),
        read_only: bool = False,
    ) -> None:
        self.guard = guard
        self._audit = audit
        self._spellers = [dialect for dialect in dialects if isinstance(dialect, PathSpeller)]
        self._spaces = [
            (dialect.space, dialect) for dialect in dialects if isinstance(dialect, SpaceOwner) and dialect.space
        ]
        if owner is not None:
            self._spaces.append(("", owner))
        self._exact: dict[str, _Node] = {}
        self._root = _Node()
        # A few targets are requested often (sends to a topic), so they are cached. Bounded, because clients choose the
        # paths.
        self._recent: dict[tuple[bytes, bytes], Target] = {}
        self._recent_bytes = 0
        self._missing = Found(
            fixed_route("no_route", plain_error(404, "no_route", "There is nothing at this path.")), None
        )
        for dialect in dialects:
            for route in dialect.routes():
                accepted = route.token & token_places.get(dialect, route.token)
                if read_only and route.method != "GET":
                    accepted &= ~TokenPlace.COOKIE
                self._add(msgspec.structs.replace(route, token=accepted), dialect)

    def routes(self) -> list[Route]:
        """Every route of the table."""
        return [route for route, _ in self.table()]

    def table(self) -> list[tuple[Route, RouteOwner]]:
        """Every route, with the dialect that answers it."""
        found: list[tuple[Route, RouteOwner]] = []
        nodes = [*self._exact.values(), self._root]
        while nodes:
            node = nodes.pop()
            found.extend(node.methods.values())
            nodes.extend(node.literal.values())
            nodes.extend(child for child in (node.placeholder, node.rest) if child is not None)
        return found

    def locate(self, method: bytes, url: bytes, *, redirects: bool = True) -> Target:
        """(method, path, query, Found) of a request line. The parser accepts only ASCII."""
        target = self._recent.get((method, url))
        if target is not None:
            return target
        verb = method.decode()
        path, query = _split(url)
        found = self.find(verb, path, redirects=redirects)
        target = (verb, path, query, found)
        if len(found.params) == 1 and not query:
            self._recent_bytes += len(url)
            if len(self._recent) >= RECENT_TARGETS or self._recent_bytes > RECENT_BYTES:
                self._recent.clear()
                self._recent_bytes = len(url)
            self._recent[(method, url)] = target
        return target

    def find(self, method: str, path: str, *, redirects: bool = True) -> Found:
        """The route for a request. `path` is percent-encoded, as on the wire. `redirects` False: another spelling of a
        path is answered directly, because a token was removed from the path that the client knows."""
        node = self._exact.get(path)
        if node is not None:
            return self._at(node, method, ())
        segments = path.split("/")
        walked = self._walk(self._root, segments, 1) if segments[0] == "" and len(segments) > 1 else None
        if walked is not None:
            return self._at(walked[0], method, walked[1])
        return self._respelled(method, path, redirects) or self._nowhere(path)

    def respond(self, found: Found, request: Request, queue: QueueLimit | None = None) -> Coroutine[Any, Any, Response]:
        """Run the handler. The dialect answers a refusal (DuelineError); anything unexpected is 500 `internal`. An
        audited call is in the audit log before it is answered. `queue`: the limit of queued jobs of the caller's
        token."""
        if found.route.audited and self._audit is not None:
            return self._audited(self._audit, found, request, queue)
        return self._respond(found, request, queue)

    async def _audited(self, audit: Audit, found: Found, request: Request, queue: QueueLimit | None) -> Response:
        request.note = note = _note(found, request)
        try:
            answer = await self._respond(found, request, queue)
        except asyncio.CancelledError:  # it may have taken effect
            note.code = GONE
            if _is_audited(found.route, note):
                audit.write_later(note)
            raise
        note.status = answer.status
        if _is_audited(found.route, note):
            await audit.write(note)
        return answer

    async def _respond(self, found: Found, request: Request, queue: QueueLimit | None) -> Response:
        actor = Actor(request.grant.name or request.address)
        begin_call(actor)
        try:
            if self.guard is not None and (waiting := self.guard(request, found.route)) is not None:
                await waiting
            route = found.route
            if queue is not None:
                request.queue = queue
                if route.right is not Right.PULL and not route.parks and isinstance(route.right, Right):
                    request.held = queue.hold(1)  # else the handler knows the command
            return await route.handler(request)
        except DuelineError as error:
            return self.failed(found, request, error)
        except Exception:
            log.exception("unexpected error in a handler", **request_fields(found.route, request))
            if request.note is not None:
                request.note.code = DuelineError.code
            return internal_error()
        finally:
            actor.name = ""
            if queue is not None:
                queue.jobs -= request.held

    def failed(self, found: Found, request: Request, error: DuelineError) -> Response:
        """The answer for a refusal, in the format of the route's dialect.

        A refusal before `respond` is audited here, but only if the caller is known: strangers must not fill the log."""
        answer = self._refusal(found, request, error)
        if request.note is not None:
            request.note.code = error.code
        elif found.route.audited and self._audit is not None and isinstance(error, NotGranted | BodyTooLarge):
            note = _note(found, request)
            note.status, note.code = answer.status, error.code
            if _is_audited(found.route, note):
                self._audit.write_later(note)
        return answer

    def _refusal(self, found: Found, request: Request, error: DuelineError) -> Response:
        try:
            if found.dialect is not None:
                answer = found.dialect.failed(request, error)
                if isinstance(error, Unauthorized):  # in every dialect: proxies and tools understand it
                    answer.status, answer.headers = 401, (("www-authenticate", "Bearer"),)
                elif error.code == Forbidden.code:
                    answer.status = 403
                elif error.code == RateLimited.code:  # a dialect may have made another error of it
                    retry_after_s: int = getattr(error, "retry_after_s", 1)
                    answer.status, answer.headers = 429, (("retry-after", str(retry_after_s)),)
                return answer
        except Exception:
            log.exception("unexpected error while refusing", **request_fields(found.route, request))
            return internal_error()
        return plain_error(_TRANSPORT_STATUS.get(error.code, 400), error.code, error.message, error.field)

    def _respelled(self, method: str, path: str, redirects: bool) -> Found | None:
        """The route for another spelling of a path. On a dialect's own listener it may redirect to a path that does
        not exist, because the original does."""
        for dialect in self._spellers:
            spelling = dialect.respelled(path)
            if spelling == path:
                continue
            node = self._exact.get(spelling)
            found = self._nowhere(path) if node is None else self._at(node, method, ())
            if found.dialect is dialect:
                return Found(_moving(found.route, dialect, spelling), dialect) if redirects else found
        return None

    def _nowhere(self, path: str) -> Found:
        for space, dialect in self._spaces:
            if path.startswith(space):
                return Found(
                    _refusing(Route("*", "", self._missing.route.handler, "no_route", *PUBLIC), NoRoute()), dialect
                )
        return self._missing

    def _add(self, route: Route, dialect: RouteOwner) -> None:
        segments = route.pattern.split("/")[1:]
        if not any(_is_placeholder(segment) for segment in segments):
            node = self._exact.setdefault(route.pattern, _Node())
        else:
            node = self._root
            for segment in segments:
                if segment.endswith("*}"):
                    node.rest = node.rest or _Node()
                    node = node.rest
                elif _is_placeholder(segment):
                    node.placeholder = node.placeholder or _Node()
                    node = node.placeholder
                else:
                    node = node.literal.setdefault(segment, _Node())
        if route.method in node.methods:
            other = node.methods[route.method][0]
            raise ValueError(f"{route.method} {route.pattern} is claimed by both {other.name} and {route.name}")
        node.methods[route.method] = (route, dialect)

    def _walk(self, node: _Node, segments: list[str], at: int) -> tuple[_Node, tuple[str, ...]] | None:
        """The node of a path and its escaped placeholder values. A literal takes precedence over a placeholder."""
        if at == len(segments):
            return (node, ()) if node.methods else None
        segment = segments[at]
        child = node.literal.get(segment)
        if child is not None:
            walked = self._walk(child, segments, at + 1)
            if walked is not None:
                return walked
        if node.placeholder is not None and segment != "":
            walked = self._walk(node.placeholder, segments, at + 1)
            if walked is not None:
                return walked[0], (segment, *walked[1])
        rest = "/".join(segments[at:])
        return (node.rest, (rest,)) if node.rest is not None and rest else None

    def _at(self, node: _Node, method: str, escaped: tuple[str, ...]) -> Found:
        methods = node.methods
        pair = methods.get(method) or (methods.get("GET") if method == "HEAD" else None) or methods.get("*")
        if pair is None:
            return _not_allowed(methods)
        route, dialect = pair
        if not escaped:
            # A page and a protocol may share a path: the protocol answers every request that has a body.
            other = methods.get("*") if route.method == "GET" else None
            return Found(route, dialect, with_body=None if other is None else Found(*other))
        try:
            return Found(route, dialect, tuple(_unescape(value) for value in escaped))
        except InvalidField as error:
            return Found(_refusing(route, error), dialect)


def _note(found: Found, request: Request) -> AuditNote:
    """What the transport knows about a call. The calls of a token of one namespace are in the log of that namespace,
    even if they are about another one and refused."""
    route, grant = found.route, request.grant
    wanted = ALL if found.dialect is None else found.dialect.namespace
    if wanted is None:
        wanted = request.headers.get("dueline-namespace") or grant.namespace or DEFAULT_NAMESPACE
    namespace = grant.namespace or wanted
    note = AuditNote(route.name, grant.token_id, grant.name, request.address, namespace)
    note_path(note, route.pattern, found.params)
    if wanted != namespace:
        note.details["wanted_namespace"] = wanted
    return note


def _is_audited(route: Route, note: AuditNote) -> bool:
    """Whether an entry is written for this call. Callers that are not known, or not yet, leave none."""
    if not isinstance(route.audited, bool):
        note.action = route.audited.get(note.command, "")
    return bool(note.action) and note.code not in (Unauthorized.code, Loading.code)


def internal_error() -> Response:
    """500 for a bug of ours, without details for the client."""
    return plain_error(500, "internal", "Something went wrong on the server; its log has the details.")


_TRANSPORT_STATUS = {"body_too_large": 413, "rate_limited": 429, "unauthorized": 401, "forbidden": 403}


def _split(url: bytes) -> tuple[str, str]:
    """Path and query of a request target, as on the wire."""
    if url[:1] != b"/" and b"://" in url:
        url = b"/" + url.partition(b"://")[2].partition(b"/")[2]
    path, _, query = url.decode("latin-1").partition("#")[0].partition("?")
    return path, query


def _is_placeholder(segment: str) -> bool:
    return segment.startswith("{")


def _unescape(segment: str) -> str:
    if "%" not in segment:
        return segment
    data = unquote_to_bytes(segment)
    # Decoding leaves the percent sign of an invalid escape in the text; a literal percent sign must be written %25.
    if data.count(b"%") != segment.count("%25"):
        raise InvalidField("has a percent sign that is not an escape", "path")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidField("is not UTF-8", "path") from None


def fixed_route(name: str, response: Response) -> Route:
    """A route that always gives the same answer."""

    async def answer(_request: Request) -> Response:
        return response

    return Route("*", "", answer, name, *PUBLIC)


def _not_allowed(methods: dict[str, tuple[Route, RouteOwner]]) -> Found:
    allowed = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
    text, header = f"This path takes {allowed}.", ("allow", allowed)
    _, dialect = next(iter(methods.values()))
    if not isinstance(dialect, SpaceOwner):
        answer = plain_error(405, "method_not_allowed", text, headers=(header,))
        return Found(fixed_route("method_not_allowed", answer), None)

    async def refuse(request: Request) -> Response:
        answer = dialect.failed(request, MethodNotAllowed(text))
        answer.headers = (*answer.headers, header)
        return answer

    return Found(Route("*", "", refuse, "method_not_allowed", *PUBLIC), dialect)


def _moving(route: Route, dialect: PathSpeller, path: str) -> Route:
    """The same route, but the dialect may redirect clients to its path."""

    async def move(request: Request) -> Response:
        return dialect.moved(request, path) or await route.handler(request)

    handler: Handler = move
    return msgspec.structs.replace(route, handler=handler, line=None)


def _refusing(route: Route, error: DuelineError) -> Route:
    """The same route, but it refuses every request with `error`."""

    async def refuse(_request: Request) -> Response:
        raise error

    handler: Handler = refuse
    return Route(route.method, route.pattern, handler, route.name, route.right, route.token, audited=route.audited)
