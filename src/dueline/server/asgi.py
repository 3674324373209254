"""The same router as an ASGI application, for any ASGI server and for embedding.

The ASGI server owns sockets, TLS and slow clients, and so the limits of connections. This module repeats only the
checks that need no socket: the body size (before the body is buffered), and Content-Length together with
Transfer-Encoding. A parked handler is cancelled when the client disconnects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing, closing
from typing import Any

from ..dialects.http import NotGranted, Request, Response, Stream, plain_error
from ..engine.errors import BodyTooLarge, DuelineError, QuotaExceeded, Unauthorized
from ..engine.queue_limit import QueueLimit
from ..rights import Grant
from .authentication import Authenticator, OpenAccess, namespace_of, take_token, without_token
from .browser import BrowserRules
from .front import Answered
from .head import Headers, join_headers
from .quotas import Quotas
from .router import Found, Router

log = logging.getLogger("dueline.server")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Hook = Callable[[], Awaitable[None]]


class AsgiApp:
    """`startup` and `shutdown` run in the ASGI server's lifespan, if it supports one."""

    def __init__(
        self,
        router: Router,
        *,
        max_body_bytes: int = 4 << 20,
        answered: Answered | None = None,
        startup: Hook | None = None,
        shutdown: Hook | None = None,
        browser_rules: BrowserRules | None = None,
        auth: Authenticator = OpenAccess(),
        quotas: Quotas = Quotas(),
    ) -> None:
        self._router = router
        self._quotas = quotas
        self._auth = auth
        self._polls: dict[asyncio.Future[Response], Grant] = {}  # parked
        self._browser_rules = browser_rules
        self._max_body_bytes = max_body_bytes
        self._answered = answered
        self._startup = startup
        self._shutdown = shutdown

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.answer_lifespan(receive, send, self._startup, self._shutdown)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            raise ValueError(f"this is an HTTP application, not one for {scope['type']!r}")

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        begun_s = asyncio.get_running_loop().time()
        raw = join_headers(scope["headers"])
        # The path must be the escaped one: "%2F" inside an id is not a separator.
        url, path_token = without_token(scope.get("raw_path") or scope["path"].encode())
        path = url.decode("latin-1").partition("?")[0]
        method: str = scope["method"]
        found = self._router.find(method, path, redirects=path_token is None).of(raw)
        query = scope.get("query_string", b"").decode("latin-1")
        address = (scope.get("client") or ("",))[0]
        request = Request(method, path, query, Headers(raw), b"", found.params, address=address)
        answer = await self._answer(found, request, raw, path_token, receive, send)
        if answer is None:
            return
        if self._answered is not None:
            spent_s = asyncio.get_running_loop().time() - begun_s
            self._answered(found.route.name, method, answer.status, spent_s)
        await write_answer(answer, method == "HEAD", send)

    async def _answer(
        self,
        found: Found,
        request: Request,
        raw: dict[bytes, bytes],
        path_token: bytes | None,
        receive: Receive,
        send: Send,
    ) -> Response | None:
        """The answer, or None when the client is gone or has the answer already."""
        if b"content-length" in raw and b"transfer-encoding" in raw:
            return plain_error(400, "bad_request", "Content-Length and Transfer-Encoding must not be used together")
        refusal = None if self._browser_rules is None else self._browser_rules.refusal(found.route, raw)
        if refusal is not None:
            return refusal
        try:
            token = take_token(found, raw, path_token)
            namespace = namespace_of(found, raw)
            not_granted = None
            try:
                request.grant = self._auth.admit(found, token, namespace)
            except NotGranted as error:  # it counts for the caller's limits, and the audit log says whose call it was
                request.grant, not_granted = error.grant, error
            quota = self._quotas.of(found, request.grant, namespace)
            if quota is not None and not quota.take(asyncio.get_running_loop().time()):
                raise quota.too_many()
            if not_granted is not None:
                raise not_granted
        except DuelineError as error:
            return self._router.failed(found, request, error)
        own = found.route.max_body_bytes
        limit = self._max_body_bytes if own is None else own
        declared = raw.get(b"content-length", b"0")
        if not declared.isdigit():
            return plain_error(400, "bad_request", "Content-Length is not a number")
        body = None if len(declared) > 19 or int(declared) > limit else await _read(receive, limit)
        if body is None:
            error = BodyTooLarge(f"The body has more than {limit} bytes.")
            return self._router.failed(found, request, error)
        if isinstance(body, ClientGone):
            return None
        request.body = body
        if not self._auth.holds(request.grant) and (error := self._auth.refusal(request.grant)):
            return self._router.failed(found, request, error)
        queue = None if quota is None else quota.queue
        if not found.route.parks:
            return await self._router.respond(found, request, queue)
        if quota is None:
            return await self._parked(found, request, queue, receive, send)
        try:
            with quota.poll:
                return await self._parked(found, request, queue, receive, send)
        except QuotaExceeded as error:
            return self._router.failed(found, request, error)

    async def _parked(
        self, found: Found, request: Request, queue: QueueLimit | None, receive: Receive, send: Send
    ) -> Response | None:
        """Run a handler that may wait; cancel it when the client disconnects."""
        handler = asyncio.ensure_future(self._router.respond(found, request, queue))
        watch = asyncio.ensure_future(_disconnected(receive))
        self._polls[handler] = request.grant
        try:
            await asyncio.wait((handler, watch), return_when=asyncio.FIRST_COMPLETED)
            if not handler.done():
                handler.cancel()
                await asyncio.wait((handler,))
            error = self._auth.refusal(request.grant)
            if handler.cancelled():
                return None if error is None else self._router.failed(found, request, error)
            answer = handler.result()
            if answer.stream is not None:
                return await self._streamed(found, request, answer, answer.stream, watch, send)
            if (watch.done() or error is not None) and answer.undelivered is not None:
                answer.undelivered()
            if error is not None:
                return self._router.failed(found, request, error)
            return None if watch.done() and answer.undelivered is not None else answer
        finally:
            del self._polls[handler]
            for task in (handler, watch):
                task.cancel()

    async def _streamed(
        self, found: Found, request: Request, answer: Response, stream: Stream, watch: asyncio.Future[None], send: Send
    ) -> Response | None:
        """Write an answer that comes in pieces, until the client disconnects or its grant ends."""

        async def pump() -> Response:
            await send({"type": "http.response.start", "status": answer.status, "headers": _headers(answer)})
            if request.method != "HEAD":
                async with aclosing(stream.pieces()) as pieces:
                    async for piece in pieces:
                        if self._auth.refusal(request.grant) is not None:
                            break
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return answer

        with closing(stream):
            if (error := self._auth.refusal(request.grant)) is not None:
                return self._router.failed(found, request, error)
            pumping = asyncio.ensure_future(pump())
            self._polls[pumping] = request.grant
            try:
                await asyncio.wait((pumping, watch), return_when=asyncio.FIRST_COMPLETED)
            finally:
                del self._polls[pumping]
                pumping.cancel()
                await asyncio.wait((pumping,))
            if not pumping.cancelled():
                pumping.result()
        return None

    def recheck(self) -> None:
        """End every parked poll whose grant no longer holds."""
        for handler, grant in list(self._polls.items()):
            if isinstance(self._auth.refusal(grant), Unauthorized):
                handler.cancel()

    @staticmethod
    async def answer_lifespan(receive: Receive, send: Send, startup: Hook | None, shutdown: Hook | None) -> None:
        """Run `startup` and `shutdown` when the ASGI server sends the lifespan events."""
        while True:
            message = await receive()
            hook = startup if message["type"] == "lifespan.startup" else shutdown
            try:
                if hook is not None:
                    await hook()
            except Exception as error:
                log.exception("%s failed", message["type"])
                await send({"type": message["type"] + ".failed", "message": str(error)})
                return
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return


class ClientGone:
    """The client disconnected while it was sending its body."""


async def _read(receive: Receive, limit: int) -> bytes | ClientGone | None:
    """The whole body; None when it is larger than the limit."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return ClientGone()
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            return None
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _headers(answer: Response) -> list[tuple[bytes, bytes]]:
    kind = [(b"content-type", answer.content_type.encode("latin-1"))] if answer.content_type else []
    return kind + [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in answer.headers]


async def write_answer(answer: Response, head_only: bool, send: Send) -> None:
    """Send a whole answer as ASGI messages."""
    headers = [(b"content-length", str(len(answer.body)).encode()), *_headers(answer)]
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if head_only else answer.body})
    except BaseException:
        if answer.undelivered is not None:
            answer.undelivered()
        raise
