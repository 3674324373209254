"""Commands on recurring schedules: schedules list, show, put, run, pause, resume, delete, next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, cast

import typer
from msgspec import Raw, UnsetType
from rich.table import Table
from rich.text import Text

from ..api import answers as r
from ..api.schedule_requests import NewTemplate, PutSchedule
from ..client import schedule_calls as calls
from ..client.calls import Answer
from . import tables
from .jobs import Body, BodyType, Headers, LeaseTime, MaxAttempts, Tags, Topic, Ttl, Yes, body_argument, now_ms
from .paging import All, Cursor, Limit, show_pages
from .session import Session, connected
from .values import BodyAs, body_fields, duration, pairs, time_ms

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.")]

LIST_EXAMPLES = ("dueline schedules list", "dueline schedules list --all -o jsonl")


@connected
def list_schedules(session: Session, limit: Limit = 50, cursor: Cursor = None, all: All = False) -> None:
    """List schedules with their next occurrence and the last job they sent."""

    def page_table(pages: list[r.SchedulePage]) -> tables.Listing:
        made = tables.Listing("NAME", "TOPIC", "WHEN", "NEXT", "LAST", "MISSED", "STATE", right=("MISSED",))
        for one in (one for page in pages for one in page.schedules):
            made.add(one.name, one.topic, _when(one), _ago(one.next_at_ms), _ago(one.last_at_ms), one.missed_count,
                     _state(one))  # fmt: skip
        return made

    show_pages(session, lambda at: calls.schedules(at, limit), "schedules", page_table, cursor, all)


SHOW_EXAMPLES = ("dueline schedules show daily-report", "dueline schedules show daily-report -o json")


@connected
def show(session: Session, name: Name) -> None:
    """Show a schedule."""
    _show(session, session.call(calls.schedule(name)))


PUT_EXAMPLES = (
    "dueline schedules put daily-report reports '{\"kind\": \"daily\"}' --cron '0 9 * * MON-FRI' --tz Europe/Madrid",
    "dueline schedules put month-end reports --cron '0 18 L * *' --overlap skip",
    "dueline schedules put poll feeds --every 15m --jitter 30s --misfire skip",
    "dueline schedules put month-end reports --cron '0 18 L * *' --dry-run",
)


@connected
def put(
    session: Session,
    name: Name,
    topic: Topic,
    body: Body = None,
    cron: Annotated[
        str | None, typer.Option("--cron", help="5 fields, 6 with seconds first, or a name such as @daily.")
    ] = None,
    tz: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of --cron; default UTC.")] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="DURATION", help="An interval, such as 15m.")] = None,
    starts: Annotated[
        int | None, typer.Option("--starts", parser=time_ms, metavar="TIME", help="No occurrence before this time.")
    ] = None,
    ends: Annotated[
        int | None, typer.Option("--ends", parser=time_ms, metavar="TIME", help="No occurrence after this time.")
    ] = None,
    jitter: Annotated[
        int | None,
        typer.Option(
            "--jitter", parser=duration, metavar="DURATION", help="Delay each job by a random time, up to this."
        ),
    ] = None,
    misfire: Annotated[
        str | None, typer.Option("--misfire", metavar="latest|skip|all", help="What to do with missed occurrences.")
    ] = None,
    overlap: Annotated[
        str | None, typer.Option("--overlap", metavar="allow|skip", help="skip: send none while the last job is alive.")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Create it paused.")] = False,
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="Only if it still has this version; 0: only if it is new.")
    ] = None,
    tag: Tags = None,
    header: Headers = None,
    ttl: Ttl = None,
    lease: LeaseTime = None,
    max_attempts: MaxAttempts = None,
    body_as: BodyType = BodyAs.AUTO,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Store nothing; show the next ten occurrences that it would have.")
    ] = False,
) -> None:
    """Create a schedule, or replace it as a whole: each occurrence becomes one job in TOPIC.

    The first occurrence is later than now. Jobs that were sent before stay."""
    raw, body_base64 = body_fields(body_argument(body), body_as)
    job: dict[str, Any] = {"ttl_ms": ttl, "lease_ms": lease, "max_attempts": max_attempts}
    request = PutSchedule(
        topic=topic,
        job=NewTemplate(
            body=raw,
            body_base64=body_base64,
            tags=tuple(tag or ()),
            headers=pairs(header, "--header") if header else None,
            **{field: value for field, value in job.items() if value is not None},
        ),
        cron=cron,
        tz=tz,
        every=every,
        starts_at_ms=starts,
        ends_at_ms=ends,
        jitter_ms=jitter,
        misfire=cast("Any", misfire),
        overlap=cast("Any", overlap),
        paused=paused or None,
        version=version,
    )
    if dry_run:
        _show_next(session, session.call(calls.preview_schedule(name, request)))
    else:
        _show(session, session.call(calls.put_schedule(name, request)))


RUN_EXAMPLES = ("dueline schedules run daily-report",)


@connected
def run(session: Session, name: Name) -> None:
    """Send a job of a schedule now. Its next occurrences do not change."""
    answer = session.call(calls.run_schedule(name))
    session.printer.result(answer.raw, tables.sent(answer.value, now_ms()))


PAUSE_EXAMPLES = ("dueline schedules pause daily-report",)


@connected
def pause(session: Session, name: Name) -> None:
    """Pause a schedule. Jobs that it has already sent stay."""
    _show(session, session.call(calls.pause_schedule(name)))


RESUME_EXAMPLES = ("dueline schedules resume daily-report",)


@connected
def resume(session: Session, name: Name) -> None:
    """Resume a schedule. Its misfire policy decides about occurrences that it missed."""
    _show(session, session.call(calls.resume_schedule(name)))


DELETE_EXAMPLES = ("dueline schedules delete daily-report --yes",)


@connected
def delete(session: Session, name: Name, yes: Yes = False) -> None:
    """Delete a schedule. Jobs that it has already sent stay."""
    session.confirm(f"Delete the schedule {name}?", yes)
    answer = session.call(calls.delete_schedule(name))
    session.printer.result(answer.raw, tables.facts({"name": name, "result": answer.value.result}))


NEXT_EXAMPLES = ("dueline schedules next daily-report", "dueline schedules next daily-report -n 3 -o json")


@connected
def next_occurrences(
    session: Session,
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100, help="How many.")] = 10,
) -> None:
    """Show the next occurrences of a schedule, in this machine's time zone."""
    _show_next(session, session.call(calls.next_occurrences(name, count)))


def _show_next(session: Session, answer: Answer[r.NextOccurrences]) -> None:
    made = tables.Listing("NEXT", "IN")
    for at_ms in answer.value.next:
        made.add(tables.moment(at_ms), _ago(at_ms))
    session.printer.result(answer.raw, made, "next")


def _show(session: Session, answer: Answer[r.Schedule] | Answer[r.SchedulePaused]) -> None:
    session.printer.result(answer.raw, _facts(answer.value))


def _facts(one: r.Schedule) -> Table:
    now, job = now_ms(), one.job
    return tables.facts(
        {
            "name": one.name,
            "topic": one.topic,
            "when": _when(one),
            "starts": tables.moment(one.starts_at_ms, now),
            "ends": tables.moment(one.ends_at_ms, now),
            "jitter": tables.age(one.jitter_ms) if one.jitter_ms else None,
            "misfire": one.misfire,
            "overlap": one.overlap,
            "state": _state(one),
            "owner": one.owner,
            "next": tables.moment(one.next_at_ms, now),
            "last": tables.moment(one.last_at_ms, now),
            "last job": one.last_job,
            "last error": one.last_error,
            "missed": one.missed_count,
            "version": one.version,
            "tags": " ".join(job.tags),
            "headers": " ".join(f"{name}={text}" for name, text in job.headers.items()),
            "body": _body(job),
            "ttl": _limit(job.ttl_ms, tables.age),
            "lease": tables.age(job.lease_ms) if isinstance(job.lease_ms, int) else None,
            "attempts": _limit(job.max_attempts, str),
            "retry": None if isinstance(job.retry, UnsetType) else job.retry,
        }
    )


def _limit(value: int | UnsetType | None, text: Callable[[int], str]) -> str | None:
    """A limit of the schedule's jobs. None: the policy of the topic applies."""
    if isinstance(value, UnsetType):
        return None
    return "no limit" if value is None else text(value)


def _body(job: r.JobTemplate) -> str:
    return bytes(job.body).decode() if isinstance(job.body, Raw) else f"base64:{job.body_base64}"


def _when(one: r.Schedule) -> str:
    return f"every {one.every}" if one.cron is None else f"{one.cron} {one.tz}"


def _ago(at_ms: int | None) -> str | None:
    return None if at_ms is None else tables.distance(at_ms, now_ms())


def _state(one: r.Schedule) -> Text:
    if one.last_error is not None:
        return Text("failing", style="red")
    if one.paused:
        return Text("paused", style="yellow")
    return Text("ended" if one.next_at_ms is None else "active", style="" if one.next_at_ms is None else "green")
