"""The calls of every job on the line (the fast path without coroutines, server.lines): from the bytes of a body to the
engine's posted call, and back to bytes.

Everything in the head (namespace, topic, media type, rights) is decided when a line is made. A list of sends leaves the
line in `SendLine.__call__`, to the handler of the route. A pull that acks first takes the line twice.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec

from ...api import answers as a
from ...api import requests as r
from ...api.operations import BY_NAME
from ...api.reply import to_json
from ...engine.commands import Pull, Sent
from ...engine.completion import PendingCall, leave
from ...engine.engine import Engine
from ...engine.errors import BadRequest, DuelineError
from ...engine.job import LeasedJob
from ...engine.store import Code, Outcome, Ref
from ..http import Answer, LineMaker, Request, Response, check_own_id, check_topic
from . import decode, encode
from .api import complete
from .items import in_list, of_each
from .wire import caller_of, check_media, decoded, plain_name

_job = msgspec.json.Decoder(r.NewJob).decode
_pull = msgspec.json.Decoder(r.PullJobs).decode
_acks = msgspec.json.Decoder(r.AckJobs).decode
_PULL = r.PullJobs()
_OK = Code.OK  # looking up a member of an enum is slow

Awaits = Callable[[Request], Coroutine[Any, Any, Response]]
"""The handler of a route, as a coroutine function."""


class _Line:
    """`handler` answers what is not for the line."""

    def __init__(self, engine: Engine, handler: Awaits, request: Request) -> None:
        self._engine = engine
        self._handler = handler
        self._params = request.params
        self._grant = request.grant
        self._topic = request.params[0]
        self._namespace = caller_of(request.headers.get("dueline-namespace"), request.grant).namespace
        check_media(request)
        check_topic(request.grant, self._topic)

    def _failed(self, error: DuelineError, asked: Any) -> DuelineError:
        complete(error, self._params, asked)
        return error


class SendLine(_Line):
    """One job."""

    def __init__(self, engine: Engine, handler: Awaits, request: Request) -> None:
        super().__init__(engine, handler, request)
        self._has_all_topics = request.grant.covers_all
        plain_name(self._topic, "topic")

    def __call__(self, request: Request, answer: Answer) -> PendingCall | None:
        body = request.body
        if body[:1] != b"{":
            return leave(self._handler(request), answer)
        asked = decoded(_job, body)
        try:
            if asked.id is not None and not self._has_all_topics:
                check_own_id(self._grant, self._engine.has_namespace_ids(self._namespace))
            command = decode.send(asked)
            on_reply = partial(self._sent, answer, asked)
            self._engine.post_send(self._namespace, self._topic, command, self._grant, on_reply)
        except DuelineError as error:
            raise self._failed(error, asked) from None
        return None

    def _sent(self, answer: Answer, asked: r.NewJob, sent: Sent | BaseException) -> None:
        if isinstance(sent, Sent):
            # The engine's Sent has the fields of the answer (api.answers.Sent).
            answer(Response(201 if sent.result == "created" else 200, to_json(sent)))
        else:
            answer(self._failed(sent, asked) if isinstance(sent, DuelineError) else sent)


class PullLine(_Line):
    """One topic."""

    def __call__(self, request: Request, answer: Answer) -> PendingCall | None:
        asked = decoded(_pull, request.body) if request.body else _PULL
        command = decode.pull_one(asked, self._namespace, self._topic)
        if not asked.ack:
            return self._engine.post_pull(command, partial(self._pulled, answer, ()))
        refs, both = decode.acks(asked.ack), _AckThenPull()
        try:
            on_acked = partial(self._acked, answer, both, command, [ref.id for ref in refs])
            self._engine.post_ack(self._namespace, self._topic, refs, on_acked)
        except BadRequest as error:
            raise in_list(error, "ack") from None
        return both

    def _acked(
        self, answer: Answer, both: _AckThenPull, command: Pull, ids: Sequence[str], done: Sequence[Any] | BaseException
    ) -> None:
        """The acks are stored. Pull, unless the client is gone or the store failed for one of them."""
        if isinstance(done, BaseException):
            results = of_each(done, ids) or ()
            failed = next((one for one in results if isinstance(one, DuelineError)), done)
            answer(in_list(failed, "ack") if isinstance(failed, BadRequest) else failed)
        elif not both.cancelled:
            on_pulled = partial(self._pulled, answer, encode.outcomes(ids, done, encode.acked))
            try:
                both.pull = both.context.run(self._engine.post_pull, command, on_pulled)
            except DuelineError as error:
                answer(error)

    def _pulled(self, answer: Answer, acked: tuple[a.Outcome, ...], jobs: list[LeasedJob] | BaseException) -> None:
        if isinstance(jobs, BaseException):
            answer(jobs)
            return
        undelivered = partial(self._engine.undelivered, self._namespace, jobs) if jobs else None
        views = a.LeasedJobs(tuple(map(encode.leased_view, jobs)), acked)
        answer(Response(200, to_json(views), undelivered=undelivered))


class _AckThenPull:
    """A pull that acks first. If it is cancelled before the acks are stored, nothing is pulled. `context` says who
    makes the call (`engine.outcomes`); a reply to acks arrives in the context of another call."""

    __slots__ = ("cancelled", "context", "pull")

    def __init__(self) -> None:
        self.context = copy_context()
        self.pull: PendingCall | None = None
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        if self.pull is not None:
            self.pull.cancel()


class AckLine(_Line):
    """Any number of jobs."""

    def __call__(self, request: Request, answer: Answer) -> PendingCall | None:
        refs = decode.acks(decoded(_acks, request.body).jobs)
        try:
            self._engine.post_ack(self._namespace, self._topic, refs, partial(self._acked, answer, refs))
        except BadRequest as error:
            raise in_list(error, "jobs") from None
        return None

    def _acked(
        self, answer: Answer, refs: Sequence[Ref], done: Sequence[Outcome | DuelineError] | BaseException
    ) -> None:
        if not isinstance(done, BaseException) and len(done) == 1 and done[0].code is _OK:
            answer(Response(200, to_json(a.Outcomes((a.Outcome(refs[0].id, "acked"),)))))
            return
        ids = [ref.id for ref in refs]
        if isinstance(done, BaseException):
            results = of_each(done, ids)
            if results is None:
                answer(in_list(done, "jobs") if isinstance(done, BadRequest) else done)
                return
            done = results
        answer(encode.response(encode.many(ids, done, encode.acked)))


_LINES: dict[str, Callable[[Engine, Awaits, Request], Any]] = {"send": SendLine, "pull": PullLine, "ack": AckLine}


def line_of(name: str, engine: Engine, handler: Awaits) -> LineMaker | None:
    """What makes the lines of an operation. None: it has none."""
    make = _LINES.get(name)
    assert make is None or not BY_NAME[name].audited
    return None if make is None else partial(make, engine, handler)
