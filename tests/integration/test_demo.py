"""`dueline demo` as a process: the shop that it opens, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dueline import Client
from dueline.testing.process import DUELINE, READY


@contextmanager
def opened(folder: Path, *arguments: str) -> Iterator[str]:
    """The address of a demo whose temporary folder is in `folder`. At the end it is stopped as by Ctrl-C."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DUELINE_")}
    process = subprocess.Popen(
        [*DUELINE, "demo", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**kept, "TMPDIR": str(folder)},
    )
    with process:
        try:
            assert process.stdout is not None
            found = READY.search(process.stdout.readline())
            assert found is not None, process.communicate()[1]
            yield found[1].removesuffix("/ui/")
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
    assert (process.returncode, "nothing is left" in said) == (0, True), said


def shop_of(url: str) -> dict[str, object]:
    """What does not depend on the time of the day."""
    with Client(url) as client:
        dead = {topic: sorted((job.id, job.reason) for job in client.dead(topic)) for topic in ("emails", "invoices")}
        orders = {job.id: job.body for job in client.list_jobs("order-timeouts", body=True)}
        story = client.get("payment-notify", "pay-20417")
        return {
            "topics": sorted(one.topic for one in client.topics()),
            "dead": dead,
            "orders": orders,
            "story": (story.state, story.attempts, story.last_error),
            "schedules": sorted((one.name, one.paused) for one in client.schedules()),
            "groups": sorted((one.merge_key, one.items_count) for one in client.groups("digests")),
            "breaker": client.push("partner-orders").state,
            "paused": client.topic("coupons").paused,
            "consumers": [client.topic(topic).waiters for topic in ("emails", "order-timeouts", "thumbnails")],
        }


def test_the_same_seed_opens_the_same_shop_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    with opened(tmp_path, "--still") as url:
        first = shop_of(url)
        assert [one.name.startswith("dueline-demo-") for one in tmp_path.iterdir()] == [True]
    assert list(tmp_path.iterdir()) == []
    with opened(tmp_path, "--still") as url:
        assert shop_of(url) == first
    reasons = {reason for jobs in first["dead"].values() for _, reason in jobs}  # type: ignore[attr-defined]
    assert reasons == {"exhausted", "expired", "rejected"}
    assert (first["story"], first["breaker"], first["paused"]) == (("scheduled", 3, "answered 503"), "open", True)
    assert first["consumers"] == [1, 1, 0]


def test_customers_keep_the_shop_moving(tmp_path: Path) -> None:
    with opened(tmp_path) as url, Client(url) as client:
        happened = (event.what for event in client.events() if event.what is not None)
        assert {"sent", "delivered", "acked"} <= set(until_all({"sent", "delivered", "acked"}, happened))


def until_all(wanted: set[str], seen: Iterator[str]) -> Iterator[str]:
    missing = set(wanted)
    while missing:
        one = next(seen)
        missing.discard(one)
        yield one
