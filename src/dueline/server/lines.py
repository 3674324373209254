"""The fast path, called the line: how a connection does what the router does around a handler, without a coroutine.

    begin(exchange, answer) -> the dialect's line -> answer(response or error) -> ended(exchange, ...) -> Response
                    |
                    +-- the server is still starting: a task waits for it, then awaits the handler

A route on the line is never audited. Everyone who awaits (pipelined requests, ASGI) takes Router.respond, whose handler
awaits the same line.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ..dialects.http import Answer, Response
from ..engine.completion import PendingCall, leave
from ..engine.errors import DuelineError
from ..engine.outcomes import Actor, OutcomeHook, begin_call
from ..event_log import EventLog
from ..rights import Right
from .authentication import Authenticator
from .exchange import Exchange
from .request_fields import request_fields
from .router import Router, internal_error

log = EventLog("dueline.server")


class Lines:
    """The lines of a router. `hook`: of the store, which says whether somebody records who makes its calls."""

    def __init__(self, router: Router, auth: Authenticator, hook: OutcomeHook) -> None:
        self._router = router
        self._auth = auth
        self._hook = hook

    def begin(self, exchange: Exchange, answer: Answer) -> PendingCall | None:
        """Answer a request of a route with a line. `answer` is called once, perhaps before this returns. To stop
        that, cancel what is returned, and call `left`."""
        request, route = exchange.request, exchange.found.route
        if route.parks or self._hook.outcomes is not None:  # a poll may wait until somebody records
            exchange.actor = Actor(request.grant.name or request.address)
            begin_call(exchange.actor)
        quota, guard, line = exchange.quota, self._router.guard, exchange.line
        try:
            if quota is not None:
                if route.parks:
                    quota.poll.__enter__()
                    exchange.polls = True
                if (queue := quota.queue) is not None:
                    request.queue = queue
                    if route.right is not Right.PULL and not route.parks and isinstance(route.right, Right):
                        request.held = queue.hold(1)  # else the handler knows the command
            if guard is not None and (waiting := guard(request, route)) is not None:
                return leave(self._after(waiting, exchange), answer)
            if line is None:
                assert route.line is not None
                line = route.line(request)
            return line(request, answer)
        except Exception as error:
            answer(error)
            return None

    async def _after(self, waiting: Awaitable[None], exchange: Exchange) -> Response:
        await waiting
        return await exchange.found.route.handler(exchange.request)

    def ended(self, exchange: Exchange, result: Response | BaseException) -> Response:
        """The response to write. A poll whose grant has ended in the meantime gives its jobs back."""
        if exchange.actor is not None or exchange.quota is not None:
            self.left(exchange)
        found, request = exchange.found, exchange.request
        if isinstance(result, Response):
            if not found.route.parks or (error := self._auth.refusal(request.grant)) is None:
                return result
            if result.undelivered is not None:
                result.undelivered()
            result = error
        if isinstance(result, DuelineError):
            return self._router.failed(found, request, result)
        log.error("unexpected error in a handler", exc_info=result, **request_fields(found.route, request))
        return internal_error()

    def left(self, exchange: Exchange) -> None:
        """The call has ended, or was cancelled."""
        if exchange.actor is not None:
            exchange.actor.name = ""
        if exchange.quota is None:
            return
        if exchange.polls:
            exchange.polls = False
            exchange.quota.poll.__exit__()
        request = exchange.request
        if request.queue is not None:
            request.queue.jobs -= request.held
            request.held = 0
