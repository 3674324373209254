"""The command group `bench`: load tests of a running server. Results include this machine and the network."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import msgspec
import typer

from ..client import calls
from ..client.address import is_server
from ..client.errors import Conflict, NotFound, Unreachable
from . import tables
from .bench_load import LatenessRun, Measurement, Plan, Progress, run_roundtrip, run_send
from .bench_target import ServerTarget, Target
from .exit_codes import FAILURE
from .session import Session, connected

MOST_JOBS = 10_000_000
INTERRUPTED = 130  # the exit code that shells use for a command ended by Ctrl-C

Jobs = Annotated[int, typer.Option("--jobs", "-n", min=1, max=MOST_JOBS, help="How many jobs in all.")]
Connections = Annotated[
    int, typer.Option("--connections", "-c", min=1, max=1000, help="How many connections at a time.")
]
Bytes = Annotated[int, typer.Option("--bytes", min=2, max=1 << 20, help="Size of a body.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Default: a temporary topic, deleted afterwards.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the jobs that were sent.")]

SEND_EXAMPLES = ("dueline bench send -n 50000 -c 64", "dueline bench send -n 100000 --batch 100 -o json")


@connected
def send(
    session: Session,
    jobs: Jobs = 10_000,
    connections: Connections = 32,
    bytes_: Bytes = 100,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1000, help="Jobs per call.")] = 1,
    topic: TopicOption = None,
    keep: Keep = False,
) -> None:
    """Measure how many jobs per second the server accepts."""
    _measure(session, Plan(topic or "", jobs, connections, bytes_, batch), run_send, keep)


ROUNDTRIP_EXAMPLES = ("dueline bench roundtrip", "dueline bench roundtrip -n 20000 -c 64")


@connected
def roundtrip(
    session: Session, jobs: Jobs = 5_000, connections: Connections = 32, bytes_: Bytes = 100, topic: TopicOption = None
) -> None:
    """Measure how many round trips (send, pull, ack) per second the server does."""
    _measure(session, Plan(topic or "", jobs, connections, bytes_), run_roundtrip, keep=False)


LATENESS_EXAMPLES = ("dueline bench lateness", "dueline bench lateness -n 20000 --rate 2000")


@connected
def lateness(
    session: Session,
    jobs: Jobs = 5_000,
    rate: Annotated[int, typer.Option("--rate", min=1, max=100_000, help="Due jobs per second.")] = 1_000,
    connections: Connections = 8,
    bytes_: Bytes = 100,
    topic: TopicOption = None,
) -> None:
    """Measure how late due jobs arrive by long poll; exit 1 if any is early. Uses this machine's clock."""

    async def run(target: Target, plan: Plan, progress: Progress) -> Measurement:
        return await LatenessRun(target, plan, progress).run()

    _measure(session, Plan(topic or "", jobs, connections, bytes_, rate_per_s=rate), run, keep=False)


def _measure(
    session: Session, plan: Plan, run: Callable[[Target, Plan, Progress], Coroutine[Any, Any, Measurement]], keep: bool
) -> None:
    """Run one measurement with a progress bar, print the result, and clean up however it ends. A plan without a topic
    gets a temporary one."""
    session.call(calls.info())
    own = not plan.topic
    if own:
        plan = msgspec.structs.replace(plan, topic=f"bench-{secrets.token_hex(4)}")
    try:
        with session.printer.progress() as bar:
            task = bar.add_task(plan.topic, total=plan.jobs)
            target, runs = _target(session)
            found = runs(run(target, plan, lambda done: bar.update(task, completed=done)))
    except OSError as lost:
        raise Unreachable("unreachable", f"the connection to {session.url} was lost: {lost}") from lost
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if not keep:
            _tidy(session, plan.topic, own)
    values = msgspec.structs.asdict(found)
    shown = {name: value for name, value in values.items() if value is not None}
    session.printer.result(msgspec.json.encode(values), tables.facts(shown))
    if found.early or found.lost or found.jobs == 0:
        session.printer.error(f"{found.early or 0} early, {found.lost or 0} lost, {found.jobs} done")
        raise typer.Exit(FAILURE)


def _target(session: Session) -> tuple[Target, Callable[[Coroutine[Any, Any, Measurement]], Measurement]]:
    """The target of the load, and the function that runs it, because a store client has its own event loop."""
    if is_server(session.url):
        return ServerTarget(session.url, session.namespace, session.token), asyncio.run
    from .direct import StoreClient, StoreTarget

    assert isinstance(session.client, StoreClient)
    return StoreTarget(session.client), session.client.run


def _tidy(session: Session, topic: str, own: bool) -> None:
    """Cancel the remaining jobs, in as many calls as the server needs. A temporary topic is deleted; in any other one,
    leased jobs are not touched."""
    for state in ("scheduled", "ready", *(("leased",) if own else ())):
        while session.call(calls.cancel_matching(topic, {"state": state}, dry_run=False)).value.changed:
            pass
    if own:
        try:
            session.call(calls.delete_topic(topic))
        except (Conflict, NotFound):
            pass  # nothing was sent, or an interrupted consumer still has a lease
