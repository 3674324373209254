"""Both clients against a real server: one suite, whole lives of jobs."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dueline import AsyncClient, Client, Leased, new_job
from dueline.client import errors
from tests.kit.waiting import turns, until

from .serve_kit import served
from .shells import Shell, both

FAR = datetime.now(UTC).replace(microsecond=0) + timedelta(days=365)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("client") / "data") as address:
        yield address


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of this test alone."""
    return f"t-{abs(hash(request.node.nodeid))}"


@both
def test_a_job_is_sent_pulled_and_done(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        sent = one.send(topic, {"order": 7}, delay=0.01, tags=["x"], headers={"k": "v"}, max_attempts=3)
        assert (sent.topic, sent.result, sent.state) == (topic, "created", "scheduled")
        [leased] = one.pull(topic, max=10, lease="1m", wait="10s")
        assert (leased.id, leased.json(), leased.tags, leased.headers, leased.max_attempts) == (
            sent.id,
            {"order": 7},
            ("x",),
            {"k": "v"},
            3,
        )
        assert leased.due_at_ms == sent.due_at_ms
        assert one.extend(leased, timedelta(minutes=2)).lease_until_ms > leased.lease_until_ms
        assert one.ack(leased).result == "acked"
        assert one.ack(leased).result == "acked"
        assert one.get(topic, sent.id).state == "done"
        assert one.pull([topic, "another"]) == ()


@both
@pytest.mark.parametrize("body", [None, "text", b"\x00\xff", [1, {"a": "ä"}], 1.5])
def test_a_body_comes_back_as_it_was_given(kind: type[Any], url: str, topic: str, body: Any) -> None:
    with Shell(kind, url) as one:
        one.send(topic, body)
        [leased] = one.pull(topic)
        assert (leased.data if isinstance(body, bytes) else leased.json()) == body


@both
def test_a_job_is_given_back_and_put_aside(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        one.send(topic, 1, id="a")
        [first] = one.pull(topic)
        assert one.release(first, delay=0, error="busy", count=False).result == "released"
        [second] = one.pull(topic, wait=10)
        assert (second.attempt, second.delivery) == (1, 2)
        with pytest.raises(errors.LeaseLost):
            one.ack(first)
        stored = Leased(second.topic, second.id, second.lease)
        assert one.release(stored, discard=True, error="no").result == "dead"
        [dead] = one.dead(topic)
        assert (dead.id, dead.reason, dead.last_error) == ("a", "rejected", "no")
        assert one.revive(topic, "a", delay="1h").result == "revived"
        assert one.get(topic, "a").state == "scheduled"
        with pytest.raises(errors.DuelineApiError):
            one.purge(topic, "a")


@both
def test_a_job_is_changed_moved_fired_and_withdrawn(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        sent = one.send(topic, 1, id="a", at=FAR)
        assert one.get(topic, "a").due_at == FAR
        moved = one.reschedule(topic, "a", at=FAR - timedelta(days=1), version=sent.version)
        assert moved.due_at == FAR - timedelta(days=1)
        with pytest.raises(errors.VersionMismatch):
            one.reschedule(topic, "a", delay="1h", version=sent.version)
        edited = one.patch(topic, "a", body={"n": 2}, max_attempts=None, tags=["y"], ttl="1h")
        assert (edited.json(), edited.max_attempts, edited.tags, edited.due_at) == (
            {"n": 2},
            None,
            ("y",),
            moved.due_at,
        )
        assert one.patch(topic, "a", ttl=None).expires_at_ms is None
        assert one.fire(topic, "a").result == "fired"
        [leased] = one.pull(topic)
        with pytest.raises(errors.JobLeased):
            one.fire(topic, "a")
        assert one.cancel(topic, "a").result == "cancelled"
        with pytest.raises(errors.LeaseLost):
            one.ack(leased)
        with pytest.raises(errors.NotFound) as caught:
            one.get(topic, "nobody")
        assert (caught.value.code, caught.value.status) == ("not_found", 404)


@both
def test_an_id_that_is_taken_is_refused_kept_or_replaced(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        assert [one.send(topic, 1, id="a", delay="1h").result for _ in range(2)] == ["created", "kept"]
        with pytest.raises(errors.IdExists):
            one.send(topic, 2, id="a")
        assert one.send(topic, 2, id="a", on_conflict="keep").result == "kept"
        assert one.send(topic, 2, id="a", on_conflict="replace").result == "replaced"


@both
def test_more_jobs_than_a_request_may_have_are_sent_and_done_in_order(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        jobs = [new_job(n, id=f"j{n}") for n in range(2_300)]
        results = one.send_many(topic, iter(jobs))
        assert [(item.id, item.result) for item in results] == [(job.id, "created") for job in jobs]
        again = one.send_many(topic, jobs)
        assert {item.result for item in again} == {"kept"}
        leased = [job for _ in range(3) for job in one.pull(topic, max=1000)]
        assert [job.json() for job in leased] == list(range(2_300))
        lost = Leased(topic, "j0", "nobody")
        acked = one.ack_many([*leased, lost])
        assert [item.id for item in acked] == [*(job.id for job in leased), "j0"]
        assert [item.ok for item in acked] == [*([True] * 2_300), False]


@both
def test_more_bytes_than_a_request_may_have_are_sent(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        jobs = [new_job("x" * 200_000) for _ in range(45)]
        assert [item.result for item in one.send_many(topic, jobs)] == ["created"] * 45
        large = new_job("x" * 300_000)
        with pytest.raises(errors.InvalidRequest) as caught:
            one.send_many(topic, [*jobs, large])
        assert (caught.value.code, caught.value.field) == ("body_too_large", "[45].body")


@both
def test_a_request_that_the_server_refuses_while_it_is_still_being_sent_is_refused_and_not_unknown(
    kind: type[Any], url: str, topic: str
) -> None:
    with Shell(kind, url) as one:
        with pytest.raises(errors.InvalidRequest) as caught:
            one.send(topic, "x" * 30_000_000)
        assert (caught.value.code, one.waits) == ("body_too_large", [])
        assert one.send(topic, "x").result == "created"


@both
def test_leases_of_many_jobs_are_kept_and_given_back(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        for name in (topic, f"{topic}-b"):
            one.send_many(name, [new_job(n) for n in range(3)])
        leased = one.pull([topic, f"{topic}-b"], max=10)
        leased = [*leased[::2], *leased[1::2]]
        assert [item.id for item in one.extend_many(leased, 60)] == [job.id for job in leased]
        assert [item.result for item in one.release_many(leased, delay="1h", error="later")] == ["released"] * 6
        assert one.topic(topic).counts.scheduled == 3


@both
def test_lists_are_walked_over_all_pages(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        one.send_many(topic, [new_job(n, id=f"j{n}", delay=60 + n, tags=[f"even-{n % 2 == 0}"]) for n in range(25)])
        assert [job.id for job in one.list_jobs(topic, page=10)] == [f"j{n}" for n in range(25)]
        assert len(one.list_jobs(topic, tag="even-True", page=4)) == 13
        assert [job.json() for job in one.list_jobs(topic, state="scheduled", body=True)] == list(range(25))
        assert one.list_jobs(topic, due_after=FAR) == []
        assert topic in [found.topic for found in one.topics(page=2)]


@both
def test_jobs_are_withdrawn_revived_and_removed_by_ids_and_by_filter(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        one.send_many(topic, [new_job(n, id=f"j{n}", tags=["x"] if n < 3 else []) for n in range(8)])
        assert one.cancel_matching(topic, tag="x", dry_run=True).matched == 3
        assert one.cancel_matching(topic, tag="x").changed == 3
        results = one.cancel_many(topic, ["j3", "nobody"])
        assert [(item.id, item.ok) for item in results] == [("j3", True), ("nobody", False)]
        one.release_many(one.pull(topic, max=10), discard=True)
        assert [job.id for job in one.dead(topic, page=2)] == ["j4", "j5", "j6", "j7"]
        assert [item.result for item in one.revive_many(topic, ["j4"], delay="1h")] == ["revived"]
        assert one.revive_matching(topic, dry_run=True).matched == 3
        assert [item.result for item in one.purge_many(topic, ["j5"])] == ["purged"]
        assert one.purge(topic, "j6").result == "purged"
        assert one.purge_matching(topic).changed == 1
        assert (one.topic(topic).counts.scheduled, one.topic(topic).counts.dead) == (1, 0)


@both
def test_a_topic_has_a_policy_and_is_paused_and_resumed(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        made = one.set_topic(
            topic, lease="1m", ttl=3600, retry=["1m", "10m"], max_attempts=5, retain="1d", partitions=1
        )
        said = {name: value for name, value in made.policy.items() if value is not None}
        assert said == {
            "lease_ms": 60_000,
            "ttl_ms": 3_600_000,
            "retry": {"ladder": ["1m", "10m"]},
            "max_attempts": 5,
            "retain_ms": 86_400_000,
            "by_worker": [],
        }
        assert one.pause(topic, until=FAR).paused_until_ms == int(FAR.timestamp() * 1000)
        one.send(topic, 1)
        assert one.pull(topic) == ()
        assert one.resume(topic).paused is False
        assert len(one.pull(topic, wait=10)) == 1


@both
def test_items_of_one_merge_key_are_one_delivery(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        one.set_topic(topic, merge={"quiet": "1h", "max_items": 3})
        results = [one.send(topic, {"n": n}, merge="user-7") for n in range(2)]
        assert [result.items_count for result in results] == [1, 2]
        again = {"key": "user-7", "item_id": "x"}
        assert [one.send(topic, {"n": 2}, merge=again).id for _ in range(2)] == [results[0].id] * 2
        [leased] = one.pull(topic, wait=10)
        assert (leased.merge_key, leased.json()) == ("user-7", [{"n": 0}, {"n": 1}, {"n": 2}])
        one.send_many(topic, [new_job(n, merge=f"k{n % 2}") for n in range(4)])
        assert len(one.list_jobs(topic, merge_key="k0")) == 1
        assert [one.cancel_groups(topic, "k0").changed for _ in range(2)] == [1, 0]


@both
def test_a_topic_has_a_push_target(kind: type[Any], url: str, topic: str) -> None:
    with Shell(kind, url) as one:
        with pytest.raises(errors.NotFound):
            one.push(topic)
        with pytest.raises(errors.NotAllowed) as caught:
            one.set_push(topic, "http://127.0.0.1:1/hook")
        assert caught.value.code == "egress_refused"
        target = one.set_push(topic, "https://example.invalid/hook", timeout="5s", concurrency=3, paused=True)
        assert (target.url, target.timeout_ms, target.concurrency) == ("https://example.invalid/hook", 5000, 3)
        assert one.resume_push(topic).paused is False
        assert one.pause_push(topic).paused is True
        assert one.attempts(topic) == []
        assert one.remove_push(topic).result == "removed"


@both
def test_the_server_says_what_it_is(kind: type[Any], url: str) -> None:
    with Shell(kind, url) as one:
        assert (one.info().durability, one.ready().ready) == ("fsync", True)


async def test_fifty_tasks_share_an_async_client(url: str, topic: str) -> None:
    async with AsyncClient(url, max_connections=10) as client:
        await asyncio.gather(*(client.send(topic, n, id=f"j{n}") for n in range(50)))
        leased = await client.pull(topic, max=100)
        pool = client._pool
        assert pool is not None
        found, connections = len(leased), len(pool.idle)
    assert (found, connections <= 10) == (50, True)


async def test_pulls_that_wait_do_not_keep_sends_from_their_turn(url: str, topic: str) -> None:
    async with AsyncClient(url, max_connections=1) as client:
        waiting = [asyncio.create_task(client.pull(topic, wait="30s")) for _ in range(3)]
        await turns()
        for n in range(3):
            await client.send(topic, n)
        assert {job.json() for jobs in await asyncio.gather(*waiting) for job in jobs} == {0, 1, 2}


async def test_a_task_that_is_cancelled_at_any_moment_of_its_call_leaves_the_client_usable(
    url: str, topic: str
) -> None:
    async with AsyncClient(url, max_connections=2) as client:
        for turn in range(40):
            task = asyncio.create_task(client.send(topic, {"turn": turn}, id=f"c{turn}"))
            await turns(turn % 20)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            sent = await client.send(topic, {"after": turn}, id=f"d{turn}")
            assert (sent.id, sent.result) == (f"d{turn}", "created")  # its own answer, not the cancelled one's


async def waiters_become(client: AsyncClient, topic: str, count: int) -> None:
    await until(lambda: client.topic(topic), lambda found: found.waiters == count)


async def test_a_pull_that_is_cancelled_while_it_waits_takes_no_job_with_it(url: str, topic: str) -> None:
    async with AsyncClient(url) as client:
        waiting = asyncio.create_task(client.pull(topic, wait="60s"))
        await client.set_topic(topic)
        await waiters_become(client, topic, 1)
        waiting.cancel()
        await waiters_become(client, topic, 0)
        await client.send(topic, 1)
        assert len(await client.pull(topic, wait="10s")) == 1


def send_in_child(client: Client, topic: str, ids: Any) -> None:
    for n in range(20):
        ids.put(client.send(topic, n, id=f"child-{n}").id)


def test_a_child_process_opens_its_own_connections(url: str, topic: str) -> None:
    context = multiprocessing.get_context("fork")
    with Client(url) as client:
        client.send(topic, 0)
        ids: Any = context.Queue()
        child = context.Process(target=send_in_child, args=(client, topic, ids))
        child.start()
        own = [client.send(topic, n, id=f"own-{n}").id for n in range(20)]
        found = [ids.get(timeout=30) for _ in range(20)]
        child.join(30)
        assert (own, found) == ([f"own-{n}" for n in range(20)], [f"child-{n}" for n in range(20)])
