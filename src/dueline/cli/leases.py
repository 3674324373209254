"""Commands from the consumer's side: pull, ack, release, extend."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from ..client import Lease, calls
from . import tables
from .bulk import show_outcomes
from .jobs import Id, Topic, now_ms
from .session import Session, connected, reported
from .values import duration

Token = Annotated[str, typer.Argument(metavar="LEASE", help="The lease token from the pull.")]

DEFAULT_LEASE_MS = 30_000

PULL_EXAMPLES = (
    "dueline pull emails --wait 30s",
    "dueline pull emails --max 10 --lease 2m -o jsonl",
    "dueline pull urgent normal --wait 1m --ack",
)


@connected
def pull(
    session: Session,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more, in order of priority.")],
    max: Annotated[int, typer.Option("--max", "-n", help="At most this many jobs.")] = 1,
    lease: Annotated[
        int | None, typer.Option("--lease", parser=duration, metavar="DURATION", help="How long the jobs are leased.")
    ] = None,
    wait: Annotated[
        int | None, typer.Option("--wait", parser=duration, metavar="DURATION", help="Wait for a due job, up to 5m.")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Ack the jobs once they are printed.")] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Your name, noted in the jobs' history.")
    ] = None,
) -> None:
    """Lease due jobs; prints an empty list if nothing is due."""
    answer = session.call(calls.pull(topics, max, lease, wait or 0, by))
    jobs = answer.value.jobs
    session.printer.result(answer.raw, tables.leased(jobs, now_ms()), rows="jobs")
    if not jobs:
        session.printer.note("nothing is due")
    if not ack:
        return
    # Print first: if the output fails, the job stays leased and is redelivered.
    failed: typer.Exit | None = None
    for topic, group in itertools.groupby(sorted(jobs, key=lambda job: job.topic), key=lambda job: job.topic):
        done = session.call(calls.ack(topic, [Lease(job.id, job.lease) for job in group]))
        for outcome in done.value.results:
            if outcome.error is not None:
                failed = reported(session.printer, calls.refusal_error(outcome.error), f"ack of {outcome.id}")
    if failed is not None:
        raise failed


ACK_EXAMPLES = ("dueline ack emails report-7 LEASE",)


@connected
def ack(session: Session, topic: Topic, id: Id, lease: Token) -> None:
    """Complete a leased job; it is not delivered again."""
    show_outcomes(session, session.call(calls.ack(topic, [Lease(id, lease)])))


RELEASE_EXAMPLES = (
    "dueline release emails report-7 LEASE",
    "dueline release emails report-7 LEASE --in 5m --error 'mail server down'",
    "dueline release emails report-7 LEASE --discard",
)


@connected
def release(
    session: Session,
    topic: Topic,
    id: Id,
    lease: Token,
    in_: Annotated[
        int | None,
        typer.Option(
            "--in", parser=duration, metavar="DURATION", help="Due after this long; default: as the retry policy says."
        ),
    ] = None,
    error: Annotated[str | None, typer.Option("--error", help="What went wrong; stored with the job.")] = None,
    count: Annotated[bool, typer.Option("--count/--no-count", help="Whether this counts as an attempt.")] = True,
    discard: Annotated[bool, typer.Option("--discard", help="Skip the remaining retries: dead (rejected).")] = False,
) -> None:
    """Give a job back, now or after a delay."""
    call = calls.release(topic, Lease(id, lease), in_, error, count, discard)
    show_outcomes(session, session.call(call))


EXTEND_EXAMPLES = ("dueline extend emails report-7 LEASE --lease 5m",)


@connected
def extend(
    session: Session,
    topic: Topic,
    id: Id,
    lease: Token,
    lease_for: Annotated[
        int | None,
        typer.Option(
            "--lease",
            parser=duration,
            metavar="DURATION",
            help="How long the lease lasts from now; default 30s. Never shortens it.",
        ),
    ] = None,
) -> None:
    """Extend a lease."""
    show_outcomes(session, session.call(calls.extend(topic, Lease(id, lease), lease_for or DEFAULT_LEASE_MS)))
