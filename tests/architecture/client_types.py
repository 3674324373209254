"""Not a test itself: what a type checker must say about the clients. `# error` marks the lines it must refuse."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import assert_type

from dueline import AsyncClient, Client, Job, LeasedJob, Outcome, Sent, SentItem, Topic, new_job


def blocking(client: Client) -> None:
    assert_type(client.send("t", {"a": 1}, delay="30m"), Sent)
    assert_type(client.send_many("t", [new_job(1, delay=timedelta(hours=1))]), list[SentItem])
    jobs = client.pull("t", max=3, wait=5)
    assert_type(jobs, tuple[LeasedJob, ...])
    assert_type(client.ack(jobs[0]), Outcome)
    assert_type(client.list_jobs("t", state="dead"), Iterator[Job])
    assert_type(client.set_topic("t", lease="1m"), Topic)
    client.send("t", delayy=3)  # error
    client.send("t", delay=[])  # error
    client.pull("t", maxx=3)  # error
    client.ack("x")  # error
    client.list_jobs("t", state="asleep")  # error


async def awaited(client: AsyncClient) -> None:
    assert_type(await client.send("t", {"a": 1}, delay="30m"), Sent)
    jobs = await client.pull("t")
    assert_type(jobs, tuple[LeasedJob, ...])
    assert_type(await client.ack_many(jobs), list[Outcome])
    assert_type(client.list_jobs("t"), AsyncIterator[Job])
    assert_type(await asyncio.create_task(client.send("t")), Sent)
    print(client.send("t").result)  # error
