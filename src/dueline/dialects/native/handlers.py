"""One method per native route: decode, call the engine, encode. Handlers contain no rules of their own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from ...engine import commands
from ...engine.engine import Engine
from ...engine.errors import BadRequest, DuelineError, NotFound
from ...engine.replies import refusal
from ...engine.spreading import PartialOutcome, error_for
from ...engine.store import Outcome
from ..contract import PushRules
from ..http import Request, Response
from . import answers as a
from . import decode, encode
from . import requests as r
from .merging import cancelled_key
from .push_rules import check_callable


class NativeHandlers:
    """The handlers of `routes.OPERATIONS`. Each method is named after its operation."""

    def __init__(self, engine: Engine, info: Callable[[], a.InfoView], rules: PushRules) -> None:
        self._engine = engine
        self._rules = rules
        self._info = info

    async def send(self, request: Request) -> Response:
        namespace = decode.namespace_of(request)
        topic = decode.plain_name(request.params[0], "topic")
        command = decode.sends(request)
        if isinstance(command, commands.Send):
            return encode.sent(await self._engine.send(namespace, topic, command))
        outcomes = await self._engine.send_many(namespace, topic, command)
        ids = [getattr(outcome, "id", None) or one.id for one, outcome in zip(command, outcomes, strict=True)]
        return encode.many(ids, outcomes, success=201)

    async def get(self, request: Request) -> Response:
        topic, id = request.params
        return encode.answer(encode.job_view(await self._engine.get(decode.namespace_of(request), topic, id)))

    async def patch(self, request: Request) -> Response:
        topic, id = request.params
        command = decode.patch(request, id)
        return encode.answer(encode.job_view(await self._engine.patch(decode.namespace_of(request), topic, command)))

    async def cancel(self, request: Request) -> Response:
        topic, id = request.params
        [done] = await self._engine.cancel(decode.namespace_of(request), topic, [id])
        _succeeded(done)
        return encode.answer(a.Cancelled(id=id))

    async def fire(self, request: Request) -> Response:
        topic, id = request.params
        decode.json_request(request, r.Nothing, optional=True)
        done = _succeeded(await self._engine.fire(decode.namespace_of(request), topic, id))
        return encode.answer(a.Fired(id=id, due_at_ms=done.at_ms, version=done.version))

    async def list_jobs(self, request: Request) -> Response:
        query = decode.listing(decode.query_string(request, r.ListJobs))
        page = await self._engine.list(decode.namespace_of(request), request.params[0], query)
        return encode.answer(encode.job_page(page, query.body))

    async def pull(self, request: Request) -> Response:
        namespace = decode.namespace_of(request)
        return await self._pull(decode.pull_one(request, namespace, request.params[0]))

    async def pull_topics(self, request: Request) -> Response:
        return await self._pull(decode.pull_several(request, decode.namespace_of(request)))

    async def ack(self, request: Request) -> Response:
        refs = decode.acks(request)
        ids = [ref.id for ref in refs]
        done = await _each("jobs", ids, self._engine.ack(decode.namespace_of(request), request.params[0], refs))
        return encode.many_done(ids, done, lambda id, _: a.Acked(id=id))

    async def release(self, request: Request) -> Response:
        items = decode.releases(request)
        ids = [item.id for item in items]
        done = await _each("jobs", ids, self._engine.release(decode.namespace_of(request), request.params[0], items))
        return encode.many_done(ids, done, encode.released)

    async def extend(self, request: Request) -> Response:
        items = decode.extends(request)
        ids = [item.id for item in items]
        done = await _each("jobs", ids, self._engine.extend(decode.namespace_of(request), request.params[0], items))
        return encode.many_done(ids, done, lambda id, one: a.Extended(id=id, lease_until_ms=one.at_ms))

    async def cancel_jobs(self, request: Request) -> Response:
        asked = decode.json_request(request, r.CancelJobs)
        namespace, topic = decode.namespace_of(request), request.params[0]
        key = cancelled_key(asked)
        if key is not None:
            bulk = await self._engine.cancel_groups(namespace, topic, key, bool(asked.dry_run))
            return encode.answer(a.BulkCancelled(bulk.matched, bulk.changed, bulk.dry_run, _complete(bulk)))
        which = decode.one_way(asked)
        if isinstance(which, commands.Filter):
            bulk = await self._engine.cancel_matching(namespace, topic, which, bool(asked.dry_run))
            return encode.answer(a.BulkCancelled(bulk.matched, bulk.changed, bulk.dry_run, _complete(bulk)))
        done = await _each("ids", which, self._engine.cancel(namespace, topic, which))
        return encode.many_done(which, done, lambda id, _: a.Cancelled(id=id))

    async def list_topics(self, request: Request) -> Response:
        asked = decode.query_string(request, r.ListTopics)
        after = decode.cursor_bytes(asked.cursor).decode(errors="replace")
        views, cursor = await self._engine.topics(decode.namespace_of(request), after, asked.limit)
        next_cursor = encode.cursor_text(None if cursor is None else cursor.encode())
        return encode.answer(a.TopicPage([encode.topic_view(view) for view in views], next_cursor))

    async def get_topic(self, request: Request) -> Response:
        view = await self._engine.topic(decode.namespace_of(request), request.params[0])
        return encode.answer(encode.topic_view(view))

    async def put_topic(self, request: Request) -> Response:
        namespace = decode.namespace_of(request)
        topic = decode.plain_name(request.params[0], "topic")
        patch = decode.topic_patch(request)
        if patch.policy.on_dead is not None and patch.policy.on_dead.url is not None:
            check_callable(self._rules, patch.policy.on_dead.url, "on_dead.url")
        view, new = await self._engine.set_topic(namespace, topic, patch)
        return encode.answer(encode.topic_view(view), 201 if new else 200)

    async def delete_topic(self, request: Request) -> Response:
        topic = request.params[0]
        await self._engine.delete_topic(decode.namespace_of(request), topic)
        return encode.answer(a.Deleted(topic=topic))

    async def list_namespaces(self, request: Request) -> Response:
        asked = decode.query_string(request, r.ListTopics)
        after = decode.cursor_bytes(asked.cursor).decode(errors="replace")
        decode.namespace_of(request)  # not needed here, but an invalid header is refused everywhere
        own = request.namespace
        if own is None:
            names, cursor = await self._engine.namespaces(after, asked.limit)
        else:  # a token of one namespace must not see others
            views, _ = await self._engine.topics(own, "", 1)
            names, cursor = [own] if views else [], None
        next_cursor = encode.cursor_text(None if cursor is None else cursor.encode())
        return encode.answer(a.NamespacePage([a.Namespace(name) for name in names], next_cursor))

    async def pause(self, request: Request) -> Response:
        until_ms = decode.json_request(request, r.PauseTopic, optional=True).until_ms
        namespace, topic = decode.namespace_of(request), request.params[0]
        await self._engine.pause(namespace, topic, until_ms)
        try:
            now = await self._engine.topic(namespace, topic)
        except NotFound:  # a time in the past does not pause, and creates no topic
            return encode.answer(a.Paused(topic, False, None))
        return encode.answer(a.Paused(topic, now.paused, now.paused_until_ms))

    async def resume(self, request: Request) -> Response:
        decode.json_request(request, r.Nothing, optional=True)
        topic = request.params[0]
        await self._engine.resume(decode.namespace_of(request), topic)
        return encode.answer(a.Paused(topic, False, None))

    async def list_dead(self, request: Request) -> Response:
        query = decode.dead_listing(decode.query_string(request, r.ListDead))
        namespace, topic = decode.namespace_of(request), request.params[0]
        page = await self._engine.list(namespace, topic, query)
        try:
            by_reason = (await self._engine.topic(namespace, topic)).dead_by_reason
        except NotFound:
            by_reason = {}
        return encode.answer(encode.dead_page(page, query.body, by_reason))

    async def revive(self, request: Request) -> Response:
        asked = decode.json_request(request, r.ReviveJobs)
        namespace, topic = decode.namespace_of(request), request.params[0]
        which = decode.one_way(asked)
        given = asked.max_attempts is not UNSET
        attempts = asked.max_attempts if isinstance(asked.max_attempts, int) else None
        delay_ms = asked.delay_ms or 0
        if isinstance(which, commands.Filter):
            bulk = await self._engine.revive_matching(
                namespace, topic, which, bool(asked.dry_run), delay_ms, attempts, given
            )
            return encode.answer(a.BulkRevived(bulk.matched, bulk.changed, bulk.dry_run, _complete(bulk)))
        done = await _each("ids", which, self._engine.revive(namespace, topic, which, delay_ms, attempts, given))
        return encode.many_done(which, done, lambda id, one: a.Revived(id=id, due_at_ms=one.at_ms))

    async def purge(self, request: Request) -> Response:
        asked = decode.json_request(request, r.PurgeJobs)
        namespace, topic = decode.namespace_of(request), request.params[0]
        which = decode.one_way(asked)
        if isinstance(which, commands.Filter):
            bulk = await self._engine.purge_matching(namespace, topic, which, bool(asked.dry_run))
            return encode.answer(a.BulkPurged(bulk.matched, bulk.changed, bulk.dry_run, _complete(bulk)))
        done = await _each("ids", which, self._engine.purge(namespace, topic, which))
        return encode.many_done(which, done, lambda id, _: a.Purged(id=id))

    async def info(self, request: Request) -> Response:
        return encode.answer(msgspec.structs.replace(self._info(), namespace=decode.namespace_of(request)))

    async def _pull(self, command: commands.Pull) -> Response:
        jobs = await self._engine.pull(command)
        if not jobs:
            return Response(200, b'{"jobs":[]}')
        undelivered = partial(self._engine.undelivered, command.namespace, jobs)
        return Response(200, encode.held(jobs), undelivered=undelivered)


def _succeeded(done: Outcome) -> Outcome:
    error = refusal(done.code)
    if error is not None:
        raise error
    return done


def _complete(bulk: commands.Bulk) -> Any:
    return UNSET if bulk.complete else False


async def _each(
    name: str, ids: Sequence[str], call: Coroutine[Any, Any, list[Outcome]]
) -> Sequence[Outcome | DuelineError]:
    """The outcome of each job, or the error of the store call that failed for it. An invalid request raises, with a
    field inside the list `name` ("[3].lease" becomes "jobs[3].lease")."""
    try:
        return await call
    except PartialOutcome as partly:
        return partly.results
    except BadRequest as error:
        if error.field is None or error.field.startswith("["):
            error.field = name + (error.field or "")
        raise
    except DuelineError as error:
        if not ids:
            raise
        return [error_for(error, id) for id in ids]
