"""One method per operation: from a request struct to a reply, through the engine. Handlers contain no rules of their
own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from ...api import answers as a
from ...api import requests as r
from ...api.reply import Reply
from ...engine import commands
from ...engine.audit_log import AuditFilter
from ...engine.completion import awaited
from ...engine.engine import Engine
from ...engine.errors import BadRequest, DuelineError, Forbidden, NotFound
from ...engine.replies import refusal
from ...engine.store import Outcome
from ...rights import Right
from ..contract import PushRules
from . import decode, encode
from .items import in_list, of_each
from .merging import cancelled_key
from .push_rules import check_callable
from .wire import Caller, plain_name


class NativeHandlers:
    """The handlers of `api.OPERATIONS`. Each method is named after its operation; its last parameters are the
    placeholders of the path."""

    def __init__(self, engine: Engine, info: Callable[[], a.Info], rules: PushRules) -> None:
        self._engine = engine
        self._rules = rules
        self._info = info

    async def send(self, caller: Caller, request: r.NewJob | list[r.NewJob], topic: str) -> Reply:
        plain_name(topic, "topic")
        if isinstance(request, r.NewJob):
            send = caller.namespace, topic, decode.send(request), caller.grant
            sent = encode.sent(await awaited(self._engine.post_send, *send))
            return Reply(sent, 201 if sent.result == "created" else 200)
        outcomes = await self._engine.send_many(caller.namespace, topic, decode.sends(request), caller.grant)
        ids = [getattr(outcome, "id", None) or job.id for job, outcome in zip(request, outcomes, strict=True)]
        return encode.sent_many(ids, outcomes)

    async def get(self, caller: Caller, _: object, topic: str, id: str) -> Reply:
        return Reply(encode.job_view(await self._engine.get(caller.namespace, topic, id)))

    async def history(self, caller: Caller, _: object, topic: str, id: str) -> Reply:
        return Reply(encode.history_view(await self._engine.history(caller.namespace, topic, id)))

    async def patch(self, caller: Caller, request: r.PatchJob, topic: str, id: str) -> Reply:
        command = decode.patch(request, id)
        return Reply(encode.job_view(await self._engine.patch(caller.namespace, topic, command)))

    async def cancel(self, caller: Caller, _: object, topic: str, id: str) -> Reply:
        [done] = await self._engine.cancel(caller.namespace, topic, [id])
        _succeeded(done)
        return Reply(a.Outcome(id, "cancelled"))

    async def fire(self, caller: Caller, _: object, topic: str, id: str) -> Reply:
        done = _succeeded(await self._engine.fire(caller.namespace, topic, id))
        return Reply(a.Outcome(id, "fired", due_at_ms=done.at_ms, version=done.version))

    async def list_jobs(self, caller: Caller, request: r.ListJobs, topic: str) -> Reply:
        query = decode.listing(request)
        page = await self._engine.list(caller.namespace, topic, query)
        return Reply(encode.job_page(page, query.body))

    async def pull(self, caller: Caller, request: r.PullJobs, topic: str) -> Reply:
        command = decode.pull_one(request, caller.namespace, topic)
        if not request.ack:
            return await self._pull(command)
        ids, done = await self._ack("ack", caller, request.ack, topic)
        if (failed := next((one for one in done if isinstance(one, DuelineError)), None)) is not None:
            raise failed  # the store; nothing was pulled
        return await self._pull(command, encode.outcomes(ids, done, encode.acked))

    async def pull_topics(self, caller: Caller, request: r.PullTopics) -> Reply:
        return await self._pull(decode.pull_several(request, caller.namespace))

    async def ack(self, caller: Caller, request: r.AckJobs, topic: str) -> Reply:
        return encode.many(*await self._ack("jobs", caller, request.jobs, topic), encode.acked)

    async def release(self, caller: Caller, request: r.ReleaseJobs, topic: str) -> Reply:
        items = decode.releases(request)
        ids = [item.id for item in items]
        done = await _each("jobs", ids, self._engine.release(caller.namespace, topic, items))
        return encode.many(ids, done, encode.released)

    async def extend(self, caller: Caller, request: r.ExtendJobs, topic: str) -> Reply:
        items = decode.extends(request)
        ids = [item.id for item in items]
        done = await _each("jobs", ids, self._engine.extend(caller.namespace, topic, items))
        return encode.many(ids, done, lambda id, one: a.Outcome(id, "extended", lease_until_ms=one.at_ms))

    async def cancel_jobs(self, caller: Caller, request: r.CancelJobs, topic: str) -> Reply:
        namespace = caller.namespace
        key = cancelled_key(request)
        if key is not None:
            bulk = await self._engine.cancel_groups(namespace, topic, key, bool(request.dry_run))
            return Reply(_bulk(bulk, cancelled=bulk.changed))
        which = decode.one_way(request)
        if isinstance(which, commands.Filter):
            bulk = await self._engine.cancel_matching(namespace, topic, which, bool(request.dry_run))
            return Reply(_bulk(bulk, cancelled=bulk.changed))
        done = await _each("ids", which, self._engine.cancel(namespace, topic, which))
        return encode.many(which, done, lambda id, _: a.Outcome(id, "cancelled"))

    async def list_topics(self, caller: Caller, request: r.ListTopics) -> Reply:
        after = decode.cursor_bytes(request.cursor).decode(errors="replace")
        views, cursor = await self._engine.topics(caller.namespace, after, request.limit)
        next_cursor = encode.cursor_text(None if cursor is None else cursor.encode())
        rates = await self._engine.charts.topics(caller.namespace)
        return Reply(a.TopicPage(tuple(encode.topic_view(view, rates) for view in views), next_cursor))

    async def get_topic(self, caller: Caller, request: r.GetTopic, topic: str) -> Reply:
        bands_ms = decode.bands(request)
        view = await self._engine.topic(caller.namespace, topic, bands_ms)
        rates = await self._engine.charts.topics(caller.namespace)
        return Reply(encode.topic_view(view, rates, with_bands=bool(bands_ms)))

    async def put_topic(self, caller: Caller, request: r.PutTopic, topic: str) -> Reply:
        namespace = caller.namespace
        plain_name(topic, "topic")
        patch = decode.topic_patch(request)
        if patch.policy.on_dead is not None and patch.policy.on_dead.url is not None:
            check_callable(self._rules, patch.policy.on_dead.url, caller, "on_dead.url")
        view, new = await self._engine.set_topic(namespace, topic, patch)
        return Reply(encode.topic_view(view, {}), 201 if new else 200)

    async def delete_topic(self, caller: Caller, _: object, topic: str) -> Reply:
        await self._engine.delete_topic(caller.namespace, topic)
        return Reply(a.TopicDeleted(topic))

    async def list_namespaces(self, caller: Caller, request: r.ListTopics) -> Reply:
        after = decode.cursor_bytes(request.cursor).decode(errors="replace")
        if caller.grant.namespace is None:
            names, cursor = await self._engine.namespaces(after, request.limit)
        else:  # a token of one namespace must not see others
            views, _ = await self._engine.topics(caller.namespace, "", 1)
            names, cursor = [caller.namespace] if views else [], None
        next_cursor = encode.cursor_text(None if cursor is None else cursor.encode())
        return Reply(a.NamespacePage(tuple(map(a.Namespace, names)), next_cursor))

    async def pause(self, caller: Caller, request: r.PauseTopic, topic: str) -> Reply:
        namespace = caller.namespace
        await self._engine.pause(namespace, topic, request.until_ms)
        try:
            now = await self._engine.topic(namespace, topic)
        except NotFound:  # a time in the past does not pause, and creates no topic
            return Reply(a.Paused(topic, False, None))
        return Reply(a.Paused(topic, now.paused, now.paused_until_ms))

    async def resume(self, caller: Caller, _: object, topic: str) -> Reply:
        await self._engine.resume(caller.namespace, topic)
        return Reply(a.Paused(topic, False, None))

    async def list_dead(self, caller: Caller, request: r.ListDead, topic: str) -> Reply:
        query = decode.dead_listing(request)
        namespace = caller.namespace
        page = await self._engine.list(namespace, topic, query)
        try:
            by_reason = (await self._engine.topic(namespace, topic)).dead_by_reason
        except NotFound:
            by_reason = {}
        return Reply(encode.dead_page(page, query.body, by_reason))

    async def revive(self, caller: Caller, request: r.ReviveJobs, topic: str) -> Reply:
        namespace = caller.namespace
        which = decode.one_way(request)
        given = request.max_attempts is not UNSET
        attempts = request.max_attempts if isinstance(request.max_attempts, int) else None
        delay_ms = request.delay_ms or 0
        if isinstance(which, commands.Filter):
            bulk = await self._engine.revive_matching(
                namespace, topic, which, bool(request.dry_run), delay_ms, attempts, given
            )
            return Reply(_bulk(bulk, revived=bulk.changed))
        done = await _each("ids", which, self._engine.revive(namespace, topic, which, delay_ms, attempts, given))
        return encode.many(which, done, lambda id, one: a.Outcome(id, "revived", due_at_ms=one.at_ms))

    async def purge(self, caller: Caller, request: r.PurgeJobs, topic: str) -> Reply:
        namespace = caller.namespace
        which = decode.one_way(request)
        if isinstance(which, commands.Filter):
            bulk = await self._engine.purge_matching(namespace, topic, which, bool(request.dry_run))
            return Reply(_bulk(bulk, purged=bulk.changed))
        done = await _each("ids", which, self._engine.purge(namespace, topic, which))
        return encode.many(which, done, lambda id, _: a.Outcome(id, "purged"))

    async def list_audit(self, caller: Caller, request: r.ListAudit) -> Reply:
        namespace = request.namespace if caller.grant.namespace is None else caller.grant.namespace
        if request.namespace not in (None, namespace):
            raise Forbidden("This token belongs to another namespace.")
        which = AuditFilter(namespace, request.who, request.action, request.since_ms or 0)
        cursor = decode.cursor_bytes(request.cursor)
        entries, after = await self._engine.store.audit.page(which, cursor, request.limit)
        return Reply(a.AuditPage(tuple(map(encode.audit_entry, entries)), encode.cursor_text(after)))

    async def info(self, caller: Caller, _: object) -> Reply:
        info = self._info()
        sees_tokens = caller.grant.namespace is None and caller.grant.allows(Right.ADMIN)
        shown = tuple(  # a token must not see other namespaces, nor what other tokens use, unless it manages them all
            one
            for one in info.limits_in_use
            if one.namespace in (None, caller.namespace)
            and (sees_tokens or one.token_id in (None, caller.grant.token_id))
        )
        access = encode.access(caller.grant)
        return Reply(msgspec.structs.replace(info, namespace=caller.namespace, limits_in_use=shown, access=access))

    async def _pull(self, command: commands.Pull, acked: tuple[a.Outcome, ...] = ()) -> Reply:
        jobs = await self._engine.pull(command)
        undelivered = partial(self._engine.undelivered, command.namespace, jobs) if jobs else None
        return Reply(a.LeasedJobs(tuple(map(encode.leased_view, jobs)), acked), undelivered=undelivered)

    async def _ack(
        self, field: str, caller: Caller, jobs: Sequence[r.Lease], topic: str
    ) -> tuple[list[str], Sequence[Outcome | DuelineError]]:
        """The ids of the jobs and what became of each. `field`: where the request names them."""
        refs = decode.acks(jobs)
        ids = [ref.id for ref in refs]
        return ids, await _each(field, ids, self._engine.ack(caller.namespace, topic, refs))


def _succeeded(done: Outcome) -> Outcome:
    error = refusal(done.code)
    if error is not None:
        raise error
    return done


def _bulk(bulk: commands.Bulk, **changed: int) -> a.Bulk:
    return a.Bulk(matched=bulk.matched, dry_run=bulk.dry_run, complete=bulk.complete, **changed)


async def _each(
    name: str, ids: Sequence[str], call: Coroutine[Any, Any, list[Outcome]]
) -> Sequence[Outcome | DuelineError]:
    """The outcome of each job, or the error of the store call that failed for it. An invalid request raises, with a
    field inside the list `name` ("[3].lease" becomes "jobs[3].lease")."""
    try:
        return await call
    except BadRequest as error:
        raise in_list(error, name) from None
    except DuelineError as error:
        results = of_each(error, ids)
        if results is None:
            raise
        return results
