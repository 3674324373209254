"""`cancel(..., missing_ok=True)`: a job that is gone already is an answer, anything else is an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dueline import AlreadyDone, NotFound, Outcome, Worker
from dueline.client.api import Api
from dueline.testing.queue import VirtualQueue
from dueline.worker import Handle


def ended(queue: VirtualQueue) -> VirtualQueue:
    """A queue with a job that is live, one that is done, and none by the name of "never"."""
    queue.client.send("t", 1, id="live", delay="1h")
    queue.client.send("t", 1, id="done")
    [job] = queue.client.pull("t")
    queue.client.ack(job)
    return queue


def summary(outcome: Outcome) -> tuple[bool, str | None]:
    return outcome.ok, outcome.result if outcome.error is None else outcome.error.code


EXPECTED = {"live": (True, "cancelled"), "done": (False, "already_done"), "never": (False, "not_found")}


def test_a_client_may_cancel_what_is_gone_already(dueline_queue: VirtualQueue) -> None:
    client = ended(dueline_queue).client
    assert {id: summary(client.cancel("t", id, missing_ok=True)) for id in EXPECTED} == EXPECTED
    with pytest.raises(AlreadyDone):
        client.cancel("t", "done")
    with pytest.raises(NotFound):
        client.cancel("t", "never")


async def test_an_async_client_may_cancel_what_is_gone_already(dueline_queue: VirtualQueue) -> None:
    client = ended(dueline_queue).async_client

    assert {id: summary(await client.cancel("t", id, missing_ok=True)) for id in EXPECTED} == EXPECTED


def test_a_handle_may_cancel_what_is_gone_already(dueline_queue: VirtualQueue) -> None:
    worker = ended(dueline_queue).host(Worker())

    @worker.handles("t")
    def handle(body: int) -> None: ...

    assert {id: summary(handle.cancel(id, missing_ok=True)) for id in EXPECTED} == EXPECTED
    with pytest.raises(NotFound):
        handle.cancel("never")
    again = {id: asyncio.run(_cancelled(handle, id)) for id in EXPECTED}
    assert again == EXPECTED, "what was cancelled before is cancelled"


async def _cancelled(handle: Handle[..., Any], id: str) -> Any:
    return summary(await handle.acancel(id, missing_ok=True))


def test_a_wrong_address_is_not_taken_for_a_job_that_is_gone() -> None:
    steps: Any = Api.cancel(Api(), "t", "a", missing_ok=True)
    next(steps)
    with pytest.raises(NotFound, match="no such page"):
        steps.throw(NotFound("no_route", "no such page"))
