"""The examples run as they stand, and each does what its first line says; months in virtual time."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from dueline.testing.queue import VirtualQueue

EXAMPLES = Path(__file__).parents[2] / "examples"

SHOWN = {
    "order_close": """\
after 10m  pay order 1: True   {1: 'paid', 2: 'open'}
after 29m  {1: 'paid', 2: 'open'}
after 30m  {1: 'paid', 2: 'closed'}
after 30m  pay order 2: False
""",
    "good_review": """\
day 5  {2: 'too small', 1: 'good (by default)'}
day 7  {2: 'too small', 1: 'good (by default)', 3: 'good (by default)'}
then   {2: 'too small', 1: 'very good', 3: 'good (by default)'}
""",
    "reminders": """\
08 Jan  bob: 3 days left, until 11 Jan 2030
16 Jan  ann: 15 days left, until 31 Jan 2030
16 Jan  cyd: 15 days left, until 31 Jan 2030
17 Jan  ann renews, cyd leaves
02 Jan  ann: 15 days left, until 17 Jan 2031
14 Jan  ann: 3 days left, until 17 Jan 2031
""",
    "payment_polling": """\
order 1  asked at 5s 10s 20s: done
order 2  asked at 5s 10s 20s 50s 110s 410s: done
order 3  asked at 5s 10s 20s 50s 110s 410s 1310s 4910s 26510s: discard
paid {1: 'north', 2: 'south'}   to look at [3]
""",
    "digest_mail": """\
19m  to ann: 2 comments, bob: first! ... cyd: no, second
19m  to dan: 1 comments, bob: hello dan ... bob: hello dan
139m  to ann: 120 comments, eve: minute 0 ... eve: minute 119
later  to ann: 10 comments, eve: minute 120 ... eve: minute 129
""",
}


@pytest.fixture
def load() -> Callable[[str], ModuleType]:
    """A fresh copy of an example: each has its state at the top of its module."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs_as_it_stands(name: str) -> None:
    ran = subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, SHOWN[name]), ran.stderr


def test_an_order_is_closed_at_its_minute_and_never_when_it_is_paid(
    load: Callable[[str], ModuleType], dueline_queue: VirtualQueue
) -> None:
    shop, clock = load("order_close"), dueline_queue.clock
    dueline_queue.work(shop.worker)
    for order in range(20):
        shop.place(order)
    clock.advance("29m")
    assert all(shop.pay(order) for order in range(0, 20, 2))
    clock.advance(59.999)
    assert {shop.database[order] for order in range(1, 20, 2)} == {"open"}
    clock.advance(0.001)
    assert shop.database == {order: "closed" if order % 2 else "paid" for order in range(20)}
    assert [run.body["order"] for run in dueline_queue.recorder.handled()] == list(range(1, 20, 2))


def test_an_order_that_is_paid_while_its_alarm_rings_stays_paid(
    load: Callable[[str], ModuleType], dueline_queue: VirtualQueue
) -> None:
    shop = load("order_close")
    dueline_queue.host(shop.worker)
    shop.place(1)
    dueline_queue.clock.advance("31m")
    [job] = dueline_queue.client.pull("order.close")
    assert shop.pay(1)
    assert dueline_queue.client.release_many([job])[0].error is not None, "the lease ended with the cancel"
    dueline_queue.work(shop.worker)
    dueline_queue.clock.advance("1d")
    shop.close.send(shop.Close(1))  # the alarm rings once more than it should: at least once
    assert (shop.database, len(dueline_queue.recorder.handled())) == ({1: "paid"}, 1)


def test_a_review_is_written_once_five_days_after_the_delivery(
    load: Callable[[str], ModuleType], dueline_queue: VirtualQueue
) -> None:
    shop, clock = load("good_review"), dueline_queue.clock
    dueline_queue.work(shop.worker)
    shop.delivered(1)
    clock.advance("4d")
    shop.delivered(1)
    clock.advance(86_399.999)
    assert shop.reviews == {}
    clock.advance(0.001)
    assert shop.reviews == {1: "good (by default)"}
    clock.advance("30d")
    assert len(dueline_queue.recorder.handled()) == 1


def test_reminders_come_at_their_moment_and_not_after_the_subscription_is_over(
    load: Callable[[str], ModuleType], dueline_queue: VirtualQueue
) -> None:
    shop, clock = load("reminders"), dueline_queue.clock
    expires = clock.now + timedelta(days=20)
    dueline_queue.host(shop.worker)
    shop.subscribed("ann", clock.now, expires)
    assert [
        (job.id, job.due_at_ms - clock.now_ms) for job in dueline_queue.client.list_jobs("subscription.remind")
    ] == [
        ("remind-ann-15", 5 * 86_400_000),
        ("remind-ann-3", 17 * 86_400_000),
    ]
    clock.advance("21d")  # nobody works
    dueline_queue.work(shop.worker)
    assert shop.mails == []
    assert [job.reason for job in dueline_queue.client.dead("subscription.remind")] == ["expired", "expired"]


def test_a_provider_that_hangs_does_not_hold_up_the_other(
    load: Callable[[str], ModuleType], dueline_queue: VirtualQueue
) -> None:
    shop, clock = load("payment_polling"), dueline_queue.clock
    shop.providers.update(north=lambda order: True, south=lambda order: False)
    dueline_queue.work(shop.worker)
    for order in range(10):
        shop.watch(order, shop.poll_south)
    shop.watch(99, shop.poll_north)
    clock.advance("5s")
    assert shop.paid == {99: "north"}
    clock.advance("8h")
    assert sorted(shop.to_look_at) == list(range(10))
    assert {job.reason for job in dueline_queue.client.dead("poll.south")} == {"rejected"}


def test_a_digest_has_every_comment_once_in_the_order_of_the_sends(
    load: Callable[[str], ModuleType], dueline_queue: VirtualQueue
) -> None:
    shop, clock = load("digest_mail"), dueline_queue.clock
    dueline_queue.work(shop.worker)
    said: dict[str, list[str]] = {"ann": [], "bob": []}
    for number in range(300):
        reader = ("ann", "bob")[number % 2]
        shop.commented(reader, "eve", str(number))
        said[reader].append(f"eve: {number}")
        clock.advance("3m")
    clock.advance("10m")
    got = {reader: [text for name, texts in shop.mails if name == reader for text in texts] for reader in said}
    assert got == said
    assert len(shop.mails) > 2
