"""More that people do: spread a due storm, pin topics, test a push target; and very small and large numbers."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Route, expect

from dueline import Client, Patience, StoreFull, new_job

from ..integration.serve_kit import served
from ..kit.hook import Hook, ReceivedCall
from .conftest import OpenView
from .test_looks import CUT


async def test_jobs_of_a_due_storm_are_spread_after_a_count_and_keep_their_order(
    open_view: OpenView, shop: str
) -> None:
    with Client(shop) as client:
        client.send_many("flow-storm", [new_job(n, id=f"s{n:03}", delay=3600) for n in range(90)])
        client.send("flow-storm", "late", id="t", delay=3600 + 45)
        begin_ms = client.get("flow-storm", "s000").due_at_ms
        last_ms = client.get("flow-storm", "t").due_at_ms
        async with open_view() as view:
            await view.open(f"topics/flow-storm/forecast?from={begin_ms - 5_000}&to={begin_ms + 60_000}")
            await view.button("Spread these…").click()
            await expect(view.dialog).to_contain_text("91 jobs of flow-storm match now.")
            await view.dialog.get_by_label("Over how many minutes").fill("91")
            await view.dialog.get_by_role("button", name="Spread the jobs").click()
            await expect(view.text("91 jobs were changed")).to_be_visible()
            await expect(view.dialog).to_have_count(0)
        due_ms = [client.get("flow-storm", id).due_at_ms for id in (*(f"s{n:03}" for n in range(90)), "t")]
        assert due_ms == [begin_ms + n * 60_000 for n in range(91)]  # in their order, a minute apart
        async with open_view() as view:  # over less time: no job becomes due earlier than it was
            await view.open(f"topics/flow-storm/forecast?from={begin_ms - 5_000}&to={begin_ms + 6_000_000}")
            await view.button("Spread these…").click()
            await view.dialog.get_by_label("Over how many minutes").fill("1")
            await view.dialog.get_by_role("button", name="Spread the jobs").click()
            await expect(view.text("91 jobs were changed")).to_be_visible()
        assert client.get("flow-storm", "t").due_at_ms == begin_ms + 90 * 60_000 > last_ms


async def test_a_pinned_topic_stands_first_and_stays_so(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open("topics")
        first = view.page.locator("tbody tr td a.name").first
        await expect(first).not_to_have_text("thumbnails")
        await view.button("Pin thumbnails").click()
        await expect(first).to_have_text("thumbnails")
        await view.open("topics?sort=scheduled")
        await expect(first).to_have_text("thumbnails")
        await view.button("Pin thumbnails").click()
        await expect(first).not_to_have_text("thumbnails")


async def test_a_push_target_is_tested_by_a_call_of_its_own(open_view: OpenView, shop: str) -> None:
    async def answer(call: ReceivedCall) -> object:
        from aiohttp import web

        return web.Response(status=418, text="I am a teapot")

    async with Hook(answer) as hook:  # type: ignore[arg-type]
        with Client(shop) as client:
            client.set_push("flow-test-call", url=hook.url, retry=["1h"])
            async with open_view() as view:
                await view.open("topics/flow-test-call/push")
                await view.button("Test call").click()
                await hook.arrived(1)
                row = view.page.get_by_role("row", name="418")
                await expect(row).to_contain_text("I am a teapot")
                await expect(view.page.locator("tbody tr")).to_have_count(1)
            client.pause_push("flow-test-call")
            async with open_view() as view:
                await view.open("topics/flow-test-call/push")
                await expect(view.button("Resume")).to_be_visible()
                await expect(view.button("Test call")).to_have_count(0)
            client.remove_push("flow-test-call")


BIG = 10_000_000
LONG_MS = 35_700_000  # 9 h 55 min


async def test_nothing_and_ten_million_are_shown_in_full_on_request(open_view: OpenView) -> None:
    async def answer(route: Route) -> None:
        found: dict[str, Any] = await (await route.fetch()).json()
        for topic in found["topics"]:
            many = topic["topic"] == "emails"
            topic["counts"] = dict.fromkeys(topic["counts"], BIG if many else 0)
            if many:  # and the longest times
                topic["oldest_ready_at_ms"] = int(time.time() * 1000) - LONG_MS
                topic["next_due_at_ms"] = int(time.time() * 1000) + LONG_MS
                topic["late_p99_ms"], topic["done_per_s"] = LONG_MS, 123456.0
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    async with open_view() as view:
        await view.page.route("**/v1/topics?*", answer)
        await view.open("topics")
        many = view.page.locator("tbody tr", has_text="emails").locator("td.num span")
        await expect(many.first).to_have_text("10 M")
        await expect(many.first).to_have_attribute("title", "10,000,000")
        none = view.page.locator("tbody tr", has_text="digests").locator("td.num span")
        await expect(none.first).to_have_text("0")
        assert await view.page.evaluate(CUT) == []
        await view.open()
        await expect(view.text("10 M").first).to_be_visible()
        assert await view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await view.page.unroute_all(behavior="wait")


async def test_a_topic_whose_jobs_wait_for_long_is_not_shown_as_healthy(open_view: OpenView) -> None:
    """Whoever consumes it: a push target that is stopped is a consumer, too."""
    waits_ms = {"emails": 70_000, "digests": 50_000, "invoices": 70_000, "order-timeouts": 50_000}
    fields = {"emails": {"waiters": 1}, "digests": {"push": True, "paused": False}, "invoices": {"push": True}}

    async def answer(route: Route) -> None:
        found: dict[str, Any] = await (await route.fetch()).json()
        for topic in found["topics"]:
            if topic["topic"] in waits_ms:
                topic["counts"] |= {"ready": 5, "leased": 0}
                topic["oldest_ready_at_ms"] = int(time.time() * 1000) - waits_ms[topic["topic"]]
                topic |= fields.get(topic["topic"], {})
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    async with open_view() as view:
        await view.page.route("**/v1/topics?*", answer)
        await view.open("topics")

        def state(topic: str, word: str) -> Locator:
            row = view.page.locator("tbody tr", has=view.page.get_by_role("link", name=topic, exact=True))
            return row.locator(".state", has_text=re.compile(f"^{word}$"))

        await expect(state("emails", "is behind")).to_have_class("state s-warn")
        await expect(state("invoices", "is behind")).to_have_class("state s-warn")
        await expect(state("digests", "push")).to_have_class("state s-ok")
        await expect(state("order-timeouts", "nobody consumes")).to_have_class("state s-warn")
        waits_ms["order-timeouts"] = 70_000
        await view.open("topics")
        await expect(state("order-timeouts", "nobody consumes")).to_have_class("state s-bad")
        await view.page.unroute_all(behavior="wait")


async def test_the_arrows_go_over_what_a_search_found(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open()
        await view.page.keyboard.press("/")
        await view.page.keyboard.type("i")
        found = view.page.locator(".found a")
        await expect(found.nth(1)).to_be_visible()
        name = await found.nth(1).inner_text()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
            await view.page.keyboard.press(key)
        await expect(found.nth(1)).to_be_focused()
        await view.page.keyboard.press("Enter")
        await expect(view.page.get_by_role("heading", level=1)).to_have_text(name)
        await view.page.keyboard.press("/")
        await view.page.keyboard.type("i")
        await view.page.keyboard.press("ArrowDown")
        await view.page.keyboard.press("Escape")
        await expect(found).to_have_count(0)
        await expect(view.page.get_by_label("Search")).to_have_value("")


async def test_histories_that_do_not_fit_their_budget_are_shown(open_view: OpenView, tmp_path: Path) -> None:
    with served(tmp_path / "data", DUELINE_LIMITS__MAX_HISTORY_BYTES="60") as url, Client(url) as client:
        client.send("mail", 1, id="a")
        for _ in range(3):
            client.release(client.pull("mail")[0], delay=0)
        dropped = client.topic("mail").history_dropped
        assert dropped > 1
        async with open_view(url) as view:
            await view.open("topics/mail")
            await expect(view.text(f"{dropped} entries of the histories of its jobs did not fit")).to_be_visible()
            await view.open("store")
            await expect(view.text(f"{dropped} entries did not fit the budget")).to_be_visible()


async def test_a_body_of_256_kb_is_cut_until_it_is_asked_for(open_view: OpenView, shop: str) -> None:
    body = {"text": "0123456789abcdef" * 16_300, "end": "the end"}  # just below the limit
    with Client(shop) as client:
        client.send("flow-large", body, id="a", delay="1h")
        async with open_view() as view:
            await view.open("topics/flow-large/jobs/a")
            code = view.page.locator("pre.code").first
            await expect(view.text("The first 64 KB of")).to_be_visible()
            assert len(await code.inner_text()) == 64 * 1024
            await view.button("Show all").click()
            await expect(code).to_contain_text('"end": "the end"')
            await view.button("Edit").click()
            await expect(view.dialog.get_by_label("Body, as JSON")).to_have_value(re.compile("the end"))
            await view.open("topics/flow-large")
            assert len(await view.page.locator("tbody .mono.ell").inner_text()) <= 81
        assert json.loads(bytes(client.get("flow-large", "a").body)) == body


async def test_a_text_from_right_to_left_is_shown_in_its_direction(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-rtl", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", id="a", delay="1h")
    async with open_view() as view:
        await view.open("topics/flow-rtl/jobs/a")
        code = view.page.locator("pre.code").first
        await expect(code).to_contain_text("\u05e9\u05dc\u05d5\u05dd")
        assert await code.evaluate("one => getComputedStyle(one).direction") == "rtl"
        heading = view.page.get_by_role("heading", level=1)
        assert await heading.evaluate("one => getComputedStyle(one).direction") == "ltr"


async def test_the_store_shows_its_memory_its_disk_and_its_file(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open("store")
        row = view.page.locator("section", has_text="Memory and replicas").locator("tbody tr")
        await expect(row).to_contain_text("embedded")
        await expect(row).to_contain_text(re.compile(r"[\d.]+ MB (/ [\d.,]+ [MG]B|without a limit)"))
        await expect(row).to_contain_text("written")
        await expect(view.page.locator("dd", has_text=re.compile(r"^[\d.,]+ [MG]B$")).first).to_be_visible()
        bounds = view.page.locator("section", has=view.page.get_by_role("heading", name="Bounds"))
        await expect(bounds.get_by_title("262,144")).to_have_text("256 KB")
        await expect(bounds.get_by_title("604,800,000")).to_have_text("7 d")


def until_full(client: Client) -> None:
    for n in range(200):
        client.send("big", "x" * 200_000, id=f"b{n}", delay="1h")


async def test_a_guard_that_refuses_sends_is_named_where_everyone_looks(open_view: OpenView, tmp_path: Path) -> None:
    with (
        served(tmp_path / "data", DUELINE_STORE__MAX_MEMORY_BYTES=str(16 << 20)) as url,
        Client(url, patience=Patience(deadline_s=0)) as client,
    ):
        async with open_view(url) as view:
            await view.open()
            store = view.page.locator("section", has=view.page.get_by_role("heading", name="Store", exact=True))
            await expect(store).to_contain_text("fsync")
            await expect(store).to_contain_text("ready")
            with pytest.raises(StoreFull):
                until_full(client)
            attention = view.page.locator("section", has=view.page.get_by_role("heading", name="Needs attention"))
            await expect(attention).to_contain_text("memory")


async def test_a_server_that_is_not_ready_says_so_first(open_view: OpenView) -> None:
    reason = {"code": "store_evicts", "message": "the store may delete jobs"}
    body = json.dumps({"ready": False, "reasons": [reason], "warnings": []})
    async with open_view() as view:
        view.refusals = (503,)
        await view.page.route("**/readyz", lambda route: route.fulfill(status=503, body=body))
        await view.open()
        await expect(view.lead).to_have_text("The server is not ready: the store may delete jobs.")
        attention = view.page.locator("section", has=view.page.get_by_role("heading", name="Needs attention"))
        await expect(attention.get_by_role("link").first).to_have_text("urgentThe store may delete jobs")
        store = view.page.locator("section", has=view.page.get_by_role("heading", name="Store", exact=True))
        await expect(store.locator(".state")).to_have_text("not ready")
        await view.open("store")
        await expect(view.lead).to_have_text("The server is not ready.")
        await expect(view.page.locator(".alert.red")).to_contain_text("store_evicts")
        await view.page.unroute_all(behavior="wait")


async def test_whoever_edits_a_job_that_somebody_else_has_changed_is_told(open_view: OpenView, shop: str) -> None:
    """Even if the page below the dialog shows the change already."""
    with Client(shop) as client:
        client.send("flow-both", {"n": 1}, id="a", delay="1h")
        for button, action, tags in (("Edit", "Save", ["other"]), ("Reschedule", "Reschedule", ["again"])):
            async with open_view() as view:
                view.refusals = (409,)
                await view.open("topics/flow-both/jobs/a")
                await view.button(button).click()
                await expect(view.dialog).to_be_visible()
                version = client.patch("flow-both", "a", tags=tags).version
                await expect(view.page.locator("main .tag")).to_have_text(tags)
                await view.dialog.get_by_role("button", name=action).click()
                await expect(view.dialog.get_by_role("alert")).to_contain_text(
                    "Somebody else has changed it meanwhile."
                )
            assert client.get("flow-both", "a").version == version


async def test_whoever_edits_a_schedule_that_somebody_else_has_changed_is_told(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.put_schedule("flow-both", "flow-both-jobs", 1, cron="0 3 * * *")
        async with open_view() as view:
            view.refusals = (409,)
            await view.open("schedules/flow-both")
            await view.button("Edit").click()
            await expect(view.dialog.get_by_role("region", name="The next ten runs").locator("li")).to_have_count(10)
            client.put_schedule("flow-both", "flow-both-jobs", 1, cron="0 5 * * *")
            await expect(view.lead).to_contain_text("every day at 05:00")
            await view.dialog.get_by_role("button", name="Save").click()
            await expect(view.dialog.get_by_role("alert")).to_contain_text("version_mismatch")
        assert client.schedule("flow-both").cron == "0 5 * * *"
        client.delete_schedule("flow-both")
