"""Every method of both clients, written once. No I/O: a method builds the calls, the client executes them (`method`).

    on one job      send get history patch reschedule cancel fire pull ack release extend revive purge  raise errors
    on many jobs    send_many ack_many release_many extend_many cancel_many revive_many purge_many      a result per job
    by filter       cancel_matching revive_matching purge_matching cancel_groups                        counts
    lists           list_jobs dead                                                                      iterators
    topics, push targets, the server                                                                    see `topic_api`
    schedules, access tokens                                                  see `schedule_api`, see `token_api`
    forecast charts groups                                                    see `overview_api`

A duration is a text such as "30m", a number of seconds, or a timedelta. A moment is an aware datetime or an RFC 3339
text (`times`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Unpack, cast

from ..api import answers as r
from ..api.answers import LeasedJob
from ..api.requests import Lease, NewJob
from . import bulk, calls, overview_calls
from .calls import Call, Leased
from .errors import GONE, AlreadyDone, NotFound
from .method import Pages, Steps, method, pages
from .sending import Edits, SendOptions, body_fields, job_fields, new_job, time_fields
from .times import Duration, Moment, duration_ms, moment_ms
from .topic_api import PAGE_ROWS, TopicApi

State = Literal["scheduled", "ready", "leased", "done", "dead", "cancelled"]


class Api(TopicApi):
    """The methods that Client and AsyncClient share."""

    # Sending.

    @method
    def send(self, topic: str, body: Any = None, **options: Unpack[SendOptions]) -> Call[r.Sent]:
        """Send a job. It is stored when this returns. Its id is generated before the first try, so retries never
        create a second job.

        `body` is any JSON value (or struct, dataclass, pydantic model), text, or bytes. Options: `delay` or `at`,
        `id`, `on_conflict`, `merge`, `lease`, `ttl`, `max_attempts`, `retry`, `tags`, `headers`; see SendOptions."""
        return calls.send(topic, new_job(body, **options))

    @method
    def send_many(self, topic: str, jobs: Iterable[NewJob]) -> Steps[list[r.SentItem]]:
        """Send any number of jobs, preferably made by `new_job`, in as few requests as the server's limits allow.

        Returns one result per job, in order: `ok` or an `error`. A malformed job makes the server reject its whole
        request. A job without an id gets one before the first try, so retries never create a second job."""
        return bulk.send_many(topic, jobs)

    # Consuming.

    @method
    def pull(
        self,
        topics: str | Sequence[str],
        max: int = 1,
        lease: Duration | None = None,
        wait: Duration = 0,
        by: str | None = None,
    ) -> Steps[tuple[LeasedJob, ...]]:
        """Lease up to `max` due jobs; wait up to `wait` for the first. Empty when none became due.

        Topics are listed in order of priority. `lease` defaults to the job's, then to the topic's, then to 30 s.
        `by`: your name, for the history of the jobs."""
        names = [topics] if isinstance(topics, str) else topics
        lease_ms = None if lease is None else duration_ms(lease, "lease")
        leased: r.LeasedJobs = yield calls.pull(names, max, lease_ms, duration_ms(wait, "wait"), by)
        return leased.jobs

    @method
    def ack(self, job: LeasedJob | Leased) -> Steps[r.Outcome]:
        """Complete a leased job; it is never delivered again. Raises LeaseLost when the lease has already ended."""
        return bulk.only((yield calls.ack(job.topic, [Lease(job.id, job.lease)])))

    @method
    def ack_many(self, jobs: Iterable[LeasedJob | Leased]) -> Steps[list[r.Outcome]]:
        """Complete leased jobs of any topics. Returns one result per job, in order."""
        return bulk.on_leases(list(jobs), calls.ack)

    @method
    def ack_and_pull(
        self,
        topic: str,
        jobs: Iterable[LeasedJob | Leased],
        max: int = 1,
        lease: Duration | None = None,
        wait: Duration = 0,
        by: str | None = None,
    ) -> Steps[r.LeasedJobs]:
        """Complete leased jobs of a topic, then lease up to `max` due ones of it, in one request. It waits up to `wait`
        for the first. Returns the new `jobs`, and `acked`: one result per completed job, in order.

        The acks take effect before it waits. If it raises, they may have: acking again is safe."""
        lease_ms = None if lease is None else duration_ms(lease, "lease")
        leases = [Lease(job.id, job.lease) for job in jobs]
        answer: r.LeasedJobs = yield calls.pull([topic], max, lease_ms, duration_ms(wait, "wait"), by, leases)
        return answer

    @method
    def release(
        self,
        job: LeasedJob | Leased,
        delay: Duration | None = None,
        error: str | None = None,
        count: bool = True,
        discard: bool = False,
    ) -> Steps[r.Outcome]:
        """Give a leased job back. It is due again after `delay`, or as its retry policy says.

        `error` is stored with the job. `count=False`: this does not count as an attempt. `discard=True` makes the job
        dead (rejected)."""
        delay_ms = None if delay is None else duration_ms(delay)
        return bulk.only((yield calls.release(job.topic, Lease(job.id, job.lease), delay_ms, error, count, discard)))

    @method
    def release_many(
        self,
        jobs: Iterable[LeasedJob | Leased],
        delay: Duration | None = None,
        error: str | None = None,
        count: bool = True,
        discard: bool = False,
    ) -> Steps[list[r.Outcome]]:
        """Give back leased jobs of any topics, all with the same options. Returns one result per job, in order."""
        delay_ms = None if delay is None else duration_ms(delay)
        return bulk.on_leases(
            list(jobs), lambda topic, part: calls.release_many(topic, part, delay_ms, error, count, discard)
        )

    @method
    def extend(self, job: LeasedJob | Leased, lease: Duration) -> Steps[r.Outcome]:
        """Extend a lease to `lease` from now. It is never shortened. Raises LeaseLost when it has already ended."""
        return bulk.only((yield calls.extend(job.topic, Lease(job.id, job.lease), duration_ms(lease, "lease"))))

    @method
    def extend_many(self, jobs: Iterable[LeasedJob | Leased], lease: Duration) -> Steps[list[r.Outcome]]:
        """Extend the leases of jobs of any topics. Returns one result per job, in order."""
        lease_ms = duration_ms(lease, "lease")
        return bulk.on_leases(list(jobs), lambda topic, part: calls.extend_many(topic, part, lease_ms))

    # One job by its id.

    @method
    def get(self, topic: str, id: str) -> Call[r.Job]:
        """The job as it is now. Raises NotFound."""
        return calls.get(topic, id)

    @method
    def history(self, topic: str, id: str) -> Call[r.History]:
        """What happened to the job, oldest first. Raises NotFound."""
        return overview_calls.history(topic, id)

    @method
    def patch(self, topic: str, id: str, version: int | None = None, **edits: Unpack[Edits]) -> Call[r.Job]:
        """Change a job that is not leased: `body`, `delay` or `at`, `lease`, `ttl`, `max_attempts`, `retry`, `tags`,
        `headers`. Omitted fields keep their values. With `version`, raises VersionMismatch if the job has changed."""
        unknown = edits.keys() - Edits.__annotations__.keys()
        if unknown:
            raise TypeError(f"these fields cannot be changed: {', '.join(sorted(unknown))}")
        changes = job_fields(cast("dict[str, Any]", edits))
        if "body" in edits:
            changes |= body_fields(edits["body"])
        return calls.patch(topic, id, changes if version is None else {**changes, "version": version})

    @method
    def reschedule(
        self,
        topic: str,
        id: str,
        delay: Duration | None = None,
        at: Moment | None = None,
        version: int | None = None,
    ) -> Call[r.Job]:
        """Move the due time of a job that is not leased: `delay` from now, or `at`."""
        when = time_fields(delay, at)
        if not when:
            raise ValueError("give delay or at")
        return calls.patch(topic, id, when if version is None else {**when, "version": version})

    @method
    def cancel(self, topic: str, id: str, missing_ok: bool = False) -> Steps[r.Outcome]:
        """Cancel a job. If it is leased, its lease ends. Raises NotFound, or AlreadyDone when it has already ended.

        `missing_ok`: neither is raised; instead the outcome is not `ok`, and its `error` gives the reason."""
        try:
            return (yield calls.cancel(topic, id))
        except (NotFound, AlreadyDone) as error:
            if not missing_ok or error.code not in GONE:  # no_route is a NotFound too, and a real error
                raise
            return r.Outcome(id, error=r.Refusal(error.code, error.message))

    @method
    def fire(self, topic: str, id: str) -> Call[r.Outcome]:
        """Make a job due now."""
        return calls.fire(topic, id)

    # Many jobs by their ids, or by a filter.

    @method
    def cancel_many(self, topic: str, ids: Iterable[str]) -> Steps[list[r.Outcome]]:
        """Cancel jobs. Returns one result per id, in order."""
        return bulk.in_pieces(list(ids), lambda part: calls.cancel_many(topic, part))

    @method
    def cancel_matching(
        self,
        topic: str,
        state: State | None = None,
        tag: str | None = None,
        due_after: Moment | None = None,
        due_before: Moment | None = None,
        dry_run: bool = False,
    ) -> Steps[r.Bulk]:
        """Cancel all jobs that match every given condition. `dry_run` only counts them."""
        which = _filter(state, tag, due_after, due_before)
        return bulk.matching(lambda dry: calls.cancel_matching(topic, which, dry), dry_run)

    @method
    def cancel_groups(self, topic: str, merge_key: str, dry_run: bool = False) -> Steps[r.Bulk]:
        """Cancel the merge groups of a key, except those that are leased. `dry_run` only counts them."""
        return bulk.matching(lambda dry: calls.cancel_groups(topic, merge_key, dry), dry_run)

    # Lists.

    @pages
    def list_jobs(
        self,
        topic: str,
        state: State | None = None,
        tag: str | None = None,
        due_after: Moment | None = None,
        due_before: Moment | None = None,
        merge_key: str | None = None,
        body: bool = False,
        page: int = PAGE_ROWS,
    ) -> Pages[r.Job]:
        """All jobs of a topic that match every given condition, by due time, or the live groups of a merge key.

        `body` includes the bodies. The list is fetched in pages of `page` jobs, so a job that changes meanwhile may be
        missed or appear twice."""
        which = _filter(state, tag, due_after, due_before)
        return Pages(
            lambda cursor: calls.list_jobs(topic, **which, merge_key=merge_key, cursor=cursor, limit=page, body=body),
            _jobs,
        )

    @pages
    def dead(self, topic: str, tag: str | None = None, body: bool = True, page: int = PAGE_ROWS) -> Pages[r.Job]:
        """The dead jobs of a topic, with `reason` and `last_error`."""
        return Pages(lambda cursor: calls.dead(topic, cursor, page, body, tag), _jobs)

    # Dead jobs.

    @method
    def revive(
        self, topic: str, id: str, delay: Duration | None = None, max_attempts: int | None = None
    ) -> Steps[r.Outcome]:
        """Revive a dead job, due now or after `delay`. Its attempts count from 0 again."""
        delay_ms = None if delay is None else duration_ms(delay)
        return bulk.only((yield calls.revive(topic, [id], delay_ms, max_attempts)))

    @method
    def revive_many(
        self, topic: str, ids: Iterable[str], delay: Duration | None = None, max_attempts: int | None = None
    ) -> Steps[list[r.Outcome]]:
        """Revive dead jobs. Returns one result per id, in order."""
        delay_ms = None if delay is None else duration_ms(delay)
        return bulk.in_pieces(list(ids), lambda part: calls.revive(topic, part, delay_ms, max_attempts))

    @method
    def revive_matching(
        self,
        topic: str,
        tag: str | None = None,
        due_after: Moment | None = None,
        due_before: Moment | None = None,
        delay: Duration | None = None,
        max_attempts: int | None = None,
        dry_run: bool = False,
    ) -> Steps[r.Bulk]:
        """Revive all dead jobs that match every given condition. `dry_run` only counts them."""
        which, delay_ms = _filter(None, tag, due_after, due_before), None if delay is None else duration_ms(delay)
        return bulk.matching(lambda dry: calls.revive_matching(topic, which, dry, delay_ms, max_attempts), dry_run)

    @method
    def purge(self, topic: str, id: str) -> Steps[r.Outcome]:
        """Delete a dead job permanently."""
        return bulk.only((yield calls.purge(topic, [id])))

    @method
    def purge_many(self, topic: str, ids: Iterable[str]) -> Steps[list[r.Outcome]]:
        """Delete dead jobs permanently. Returns one result per id, in order."""
        return bulk.in_pieces(list(ids), lambda part: calls.purge(topic, part))

    @method
    def purge_matching(
        self,
        topic: str,
        tag: str | None = None,
        due_after: Moment | None = None,
        due_before: Moment | None = None,
        dry_run: bool = False,
    ) -> Steps[r.Bulk]:
        """Delete all dead jobs that match every given condition. `dry_run` only counts them."""
        which = _filter(None, tag, due_after, due_before)
        return bulk.matching(lambda dry: calls.purge_matching(topic, which, dry), dry_run)


def _filter(
    state: State | None, tag: str | None, due_after: Moment | None, due_before: Moment | None
) -> dict[str, Any]:
    fields = {
        "state": state,
        "tag": tag,
        "due_after_ms": None if due_after is None else moment_ms(due_after, "due_after"),
        "due_before_ms": None if due_before is None else moment_ms(due_before, "due_before"),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _jobs(page: r.JobPage) -> Sequence[r.Job]:
    return page.jobs
