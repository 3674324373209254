"""What the pages over several topics show, and what leads from them to one job."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Locator, Route, expect

from dueline import Client, new_job

from ..kit.hook import Hook, ReceivedCall
from .conftest import OpenView
from .kit import View, report
from .test_texts import add

TIMES = "all => all.map(one => Date.parse(one.dateTime))"


async def due_times_of_the_list(view: View) -> tuple[list[int], int, int]:
    """When the listed jobs are due, and the range of the address."""
    await expect(view.page.locator("tbody tr").first).to_be_visible()
    found = re.search(r"after=(\d+)&before=(\d+)", view.page.url)
    assert found is not None, view.page.url
    return await view.page.locator("td[data-label=Due] time").evaluate_all(TIMES), int(found[1]), int(found[2])


async def test_the_forecast_of_all_topics_is_zoomed_by_a_drag_and_lists_the_jobs_of_a_bar(
    open_view: OpenView, shop: str
) -> None:
    with Client(shop) as client:
        client.send_many("flow-storm", [new_job(n, id=f"s{n}", delay=9 * 86_400 + n / 10) for n in range(50)])
    async with open_view() as view:
        await view.open("forecast?range=month")
        await expect(view.page.locator("main .lead").nth(1)).to_contain_text("fall due in this range")
        await expect(view.page.locator(".legend a", has_text="order-timeouts")).to_be_visible()
        await view.button("Next 24 hours").click()
        bars = view.page.locator(".chart g[role=link]")
        await expect(bars.nth(20)).to_be_visible()
        first, last = await bars.nth(2).bounding_box(), await bars.nth(9).bounding_box()
        assert first is not None
        assert last is not None
        await view.page.mouse.move(first["x"] + 2, first["y"] + 40)
        await view.page.mouse.down()
        await view.page.mouse.move(last["x"] + 2, last["y"] + 40, steps=4)
        await view.page.mouse.up()
        await expect(view.button("Zoom out")).to_be_visible()
        found = re.search(r"from=(\d+)&to=(\d+)", view.page.url)
        assert found is not None
        assert int(found[2]) - int(found[1]) == 8 * 1_800_000
        await view.page.go_back()
        await expect(view.button("Zoom out")).to_have_count(0)
        await bars.nth(5).click(position={"x": 3, "y": 60})
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("Jobs")
        due_ms, after_ms, before_ms = await due_times_of_the_list(view)
        assert before_ms - after_ms == 1_800_000  # one bar
        assert all(after_ms <= one < before_ms for one in due_ms)


async def test_a_bar_is_opened_by_the_keyboard(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open("topics/order-timeouts/forecast?range=day")
        bars = view.page.locator(".chart g[role=link]")
        await expect(bars.nth(20)).to_be_visible()
        assert await view.page.locator('.chart [tabindex="0"]').count() == 1  # whoever tabs past need not pass each bar
        await bars.first.focus()
        for _ in range(3):
            await view.page.keyboard.press("ArrowRight")
        bar = bars.nth(3)
        await expect(bar).to_be_focused()
        told = re.search(r"(\d+) jobs?$", await bar.get_attribute("aria-label") or "")
        assert told is not None
        await view.page.keyboard.press("Enter")
        due_ms, after_ms, before_ms = await due_times_of_the_list(view)
        assert len(due_ms) == int(told[1])
        assert all(after_ms <= one < before_ms for one in due_ms)


async def test_a_range_is_zoomed_by_the_keyboard(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open("topics/order-timeouts/forecast?range=day")
        bars = view.page.locator(".chart g[role=link]")
        await expect(bars.nth(20)).to_be_visible()
        await bars.nth(2).focus()
        for _ in range(3):
            await view.page.keyboard.press("Shift+ArrowRight")
        await view.page.keyboard.press("Enter")
        await expect(view.button("Zoom out")).to_be_visible()
        found = re.search(r"from=(\d+)&to=(\d+)", view.page.url)
        assert found is not None, view.page.url
        assert int(found[2]) - int(found[1]) == 4 * 1_800_000


@pytest.mark.parametrize(("span", "days", "hours"), [("day", 1, 3), ("week", 7, 24), ("month", 30, 5 * 24)])
async def test_times_below_a_chart_are_round_and_equally_far_apart(
    span: str, days: int, hours: int, open_view: OpenView
) -> None:
    async with open_view(timezone_id="Asia/Kolkata") as view:
        await view.open(f"topics/order-timeouts/forecast?range={span}")
        texts = view.page.locator(".chart g > text")
        await expect(texts.nth(3)).to_be_visible()
        now = datetime.now(ZoneInfo("Asia/Kolkata")).replace(tzinfo=None)
        shown = [coming(text, now) for text in await texts.all_text_contents()]
        assert shown[-1] < now + timedelta(days=days)
        assert {b - a for a, b in pairwise(shown)} == {timedelta(hours=hours)}
        assert all(at.minute == 0 and at.hour % min(hours, 24) == 0 for at in shown)


def coming(text: str, now: datetime) -> datetime:
    """The next moment that this label may mean: 09:00 or Nov 20."""
    if ":" in text:
        hour, minute = map(int, text.split(":"))
        at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return at if at > now else at + timedelta(days=1)
    at = datetime.strptime(f"{text} {now.year}", "%b %d %Y")
    return at if at > now else at.replace(year=now.year + 1)


async def test_a_due_storm_is_marked_and_ten_times_the_usual_number_is_none(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        delays_s = [3600 + 60 * n for n in range(20)] + [3600 + 60 * 4] * 9 + [3600 + 60 * 9] * 10
        client.send_many("flow-gust", [new_job(n, id=f"g{n}", delay=delay) for n, delay in enumerate(delays_s)])
        begin_ms = client.get("flow-gust", "g0").due_at_ms - 5000
    async with open_view() as view:
        await view.open(f"topics/flow-gust/forecast?from={begin_ms}&to={begin_ms + 3_600_000}")
        marked = view.page.locator(".chart g", has=view.page.locator(".storm"))
        await expect(marked).to_have_count(1)
        await expect(marked).to_have_attribute("aria-label", re.compile(": 11 jobs$"))
        await expect(view.text("A due storm: a bar has more than ten times the usual number of jobs.")).to_be_visible()
        await view.open(f"topics/flow-gust/forecast?from={begin_ms}&to={begin_ms + 500_000}")
        await expect(view.text("18 jobs fall due in this range")).to_be_visible()
        await expect(view.page.locator(".storm")).to_have_count(0)


async def test_retry_waits_are_hatched_and_paused_topics_are_outlined(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send_many("flow-kinds", [new_job(1, id="a"), new_job(2, id="b", delay="2h")])
        client.release(client.pull("flow-kinds")[0], error="no", delay="1h")
        async with open_view() as view:
            bars = view.page.locator(".chart rect.b")
            await view.open("topics/flow-kinds/forecast?range=day")
            await expect(view.page.locator(".chart rect.b.k0")).to_have_count(1)
            await expect(view.page.locator(".chart rect.b.retry")).to_have_count(1)
            assert "hatch" in await bars.first.evaluate("one => getComputedStyle(one).fill")
            client.pause("flow-kinds")
            await view.open("topics/flow-kinds/forecast?range=day")
            await expect(view.page.locator(".chart rect.b.paused")).to_have_count(2)
            assert await bars.first.evaluate("one => getComputedStyle(one).fill") == "none"


async def test_jobs_of_all_topics_are_filtered_by_state_and_tag(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-all-a", 1, id="all-1", delay="1h", tags=["flow-all"])
        client.send("flow-all-a", 1, id="all-2", tags=["flow-all"])
    async with open_view() as view:
        await view.open("jobs?state=leased")
        await expect(view.page.locator("tbody tr").first).to_contain_text("thumbnails")
        await view.page.get_by_label("State").select_option("scheduled")
        await view.page.get_by_label("Tag").fill("flow-all")
        await view.page.keyboard.press("Enter")
        await expect(view.page.get_by_role("link", name="all-1")).to_be_visible()
        await expect(view.page.locator("tbody tr")).to_have_count(1)
        await view.page.get_by_label("State").select_option("ready")
        await expect(view.page.get_by_role("link", name="all-2")).to_be_visible()
        await expect(view.page.locator("tbody tr")).to_have_count(1)


async def test_what_is_typed_into_a_filter_stays_while_the_list_changes(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-typed", 1, id="typed-1", delay="1h", tags=["urgent"])
        async with open_view() as view:
            await view.open("topics/flow-typed/jobs")
            tag = view.page.get_by_label("Tag")
            await expect(view.page.get_by_role("link", name="typed-1")).to_be_visible()
            await tag.fill("urgent")
            client.send("flow-typed", 1, id="typed-2", delay="1h")
            await expect(view.page.get_by_role("link", name="typed-2")).to_be_visible()
            await expect(tag).to_have_value("urgent")
            await tag.press("Enter")
            await expect(view.page.get_by_role("link", name="typed-2")).to_be_hidden()
            await expect(view.page.get_by_role("link", name="typed-1")).to_be_visible()


async def test_dead_letters_of_one_reason_are_revived_after_a_count(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send_many("flow-reasons", [new_job(n, id=f"r{n}", max_attempts=1) for n in range(5)])
        for job in client.pull("flow-reasons", max=5):
            client.release(job, error="no such user", discard=job.id in ("r0", "r1"))

        async def aged(route: Route) -> None:
            """One of them died two days ago."""
            found: dict[str, Any] = await (await route.fetch()).json()
            for job in found["jobs"]:
                job["ended_at_ms"] -= 2 * 86_400_000 if job["id"] == "r1" else 0
            await route.fulfill(body=json.dumps(found), content_type="application/json")

        async with open_view() as view:
            await view.page.route("**/topics/flow-reasons/dead?*", aged)
            await view.open("dead")
            await expect(view.lead).to_contain_text("dead letters")
            await view.page.get_by_role("link", name="flow-reasons").click()
            await view.button(re.compile("^rejected")).click()
            await expect(view.page.get_by_role("heading", name="2 jobs")).to_be_visible()
            await view.page.get_by_label("Died").select_option("86400000")
            await expect(view.page.get_by_role("heading", name="1 job")).to_be_visible()
            await view.button("Revive these…").click()
            await expect(view.dialog).to_contain_text("1 job of flow-reasons matches now.")
            await view.dialog.get_by_role("button", name="Revive the jobs").click()
            await expect(view.page.get_by_role("heading", name="0 jobs")).to_be_visible()
            await view.page.unroute_all(behavior="wait")
        counts = client.topic("flow-reasons").counts
        assert (counts.ready, counts.dead) == (1, 4)


async def test_more_than_a_thousand_dead_letters_are_grouped_by_the_newest_and_the_page_says_so(
    open_view: OpenView, shop: str
) -> None:
    with Client(shop) as client:
        client.send_many("flow-deaths", [new_job(n, id=f"old{n}", max_attempts=1) for n in range(400)])
        for error, count in (("an old error", 400), ("a new error", 1000)):
            if count == 1000:
                client.send_many("flow-deaths", [new_job(n, id=f"new{n}", max_attempts=1) for n in range(count)])
            client.release_many(client.pull("flow-deaths", max=count), error=error)
        async with open_view() as view:
            await view.open("topics/flow-deaths/dead")
            await expect(view.text("Only the newest 1,000 are grouped.")).to_be_visible()
            await expect(view.button(re.compile("a new error"))).to_be_visible()
            await expect(view.button(re.compile("an old error"))).to_have_count(0)
            await view.button(re.compile("a new error")).click()
            await view.button("Revive these…").click()
            await view.dialog.get_by_role("button", name="Revive the jobs").click()
            await expect(view.button(re.compile("an old error"))).to_be_visible()
        counts = client.topic("flow-deaths").counts
        assert (counts.ready, counts.dead) == (1000, 400)


async def test_the_page_says_which_dead_letters_are_grouped_if_those_are_not_the_newest(
    open_view: OpenView, shop: str
) -> None:
    with Client(shop) as client:
        client.set_topic("flow-parts", partitions=2)
        client.send_many("flow-parts", [new_job(n, tags=["all"], max_attempts=1) for n in range(1100)])
        while jobs := client.pull("flow-parts", max=1000):
            client.release_many(jobs, error="down")
    async with open_view() as view:
        await view.open("topics/flow-parts/dead")
        await expect(view.text("Only 1,000 are grouped, the newest of each partition in turn.")).to_be_visible()
        await view.open("topics/flow-parts/dead?tag=all")
        await expect(view.text("Only the first 1,000 with this tag are grouped.")).to_be_visible()
        await expect(view.text("The first 100 are shown.")).to_be_visible()


async def refuse_odd(call: ReceivedCall) -> object:
    from aiohttp import web

    odd = int(call.id[1:]) % 2
    return web.Response(status=503 if odd else 200, text="the ledger is locked" if odd else "ok")


async def test_a_push_target_shows_its_success_its_durations_and_each_answer(open_view: OpenView, shop: str) -> None:
    async with Hook(refuse_odd) as hook:  # type: ignore[arg-type]
        with Client(shop) as client:
            client.set_push("flow-push", url=hook.url, retry=["1h"])
            client.send_many("flow-push", [new_job(n, id=f"p{n}") for n in range(10)])
            await hook.arrived(10)
            async with open_view() as view:
                await view.open("push")
                await expect(view.page.get_by_role("row", name="flow-push")).to_contain_text("50 %")
                await view.page.get_by_role("link", name="flow-push").click()
                await expect(view.page.get_by_role("img", name="10 calls by time and duration")).to_be_visible()
                await expect(view.page.locator(".chart.dots .bad")).to_have_count(5)
                await view.page.get_by_label("Only failures").check()
                await expect(view.page.locator("tbody tr")).to_have_count(5)
                await expect(view.page.locator("tbody tr").first).to_contain_text("the ledger is locked")
                await view.page.get_by_placeholder("Only this job id").fill("p1")
                await view.page.keyboard.press("Enter")
                await expect(view.page.locator("tbody tr")).to_have_count(1)
                await view.page.get_by_role("link", name="p1", exact=True).click()
                timeline = view.page.locator(".timeline")
                await expect(timeline).to_contain_text("HTTP 503")
                await expect(timeline).to_contain_text("the ledger is locked")
                await expect(timeline).to_contain_text("Due again")
            client.remove_push("flow-push")


def entries_of(view: View) -> Locator:
    return view.page.locator(".timeline li")


async def test_the_timeline_of_a_job_tells_who_had_it_and_what_went_wrong(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-past", 1, id="a", retry=["0s"] * 20)
        for number in range(7):
            [leased] = client.pull("flow-past", wait="20s", by=f"<b>desk {number}</b>")
            client.release(leased, error=f"error {number}", delay="1h" if number == 6 else None)
        async with open_view() as view:
            await view.open("topics/flow-past/jobs/a")
            entries = entries_of(view)
            await expect(entries.first).to_contain_text("Sent")
            await expect(entries.first).to_contain_text("2 more deliveries are not kept.")
            words = ["Sent", *["Delivered", "Given back"] * 5, "Due again"]
            await expect(entries.locator("strong")).to_have_text(words)
            await expect(entries.nth(1)).to_contain_text("attempt 3 · <b>desk 2</b>")
            await expect(entries.nth(10)).to_contain_text("error 6")
            client.cancel("flow-past", "a")
            await expect(entries.filter(has_text="Cancelled")).to_have_count(1)

        async def held(route: Route) -> None:
            await shown.wait()
            await route.continue_()

        shown = asyncio.Event()
        async with open_view() as view:  # no half of it while the history is on its way
            await view.page.route("**/history", held)
            await view.open("topics/flow-past/jobs/a")
            panel = view.page.locator("section", has=view.page.get_by_role("heading", name="Timeline"))
            await expect(panel.get_by_role("status")).to_be_visible()
            await expect(entries_of(view)).to_have_count(0)
            shown.set()
            await expect(entries_of(view).first).to_contain_text("Sent")


async def test_the_namespaces_of_other_protocols_are_shown_and_lead_to_their_topics(
    open_view: OpenView, shop: str
) -> None:
    add(shop, "coupons", "c1", "text of another protocol")
    with Client(shop, namespace="tenant-a") as client:
        client.send("tenant-jobs", 1, id="t1", delay="1h")
    async with open_view() as view:
        await view.open("topics")
        panel = view.page.locator("section", has=view.page.get_by_role("heading", name="Namespaces"))
        await expect(panel.get_by_role("link", name="tenant-a")).to_be_visible()
        await panel.get_by_role("link", name="youzan").click()
        await expect(view.page.get_by_role("link", name="coupons", exact=True)).to_be_visible()
        await expect(view.lead).to_contain_text("topic")


async def test_merge_groups_show_how_full_they_are_and_lead_to_their_items(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        for n in range(3):
            client.send("flow-groups", {"comment": n}, merge={"key": "ann", "quiet": "1h", "max_items": 50})
        client.send("flow-groups", {"comment": 9}, merge={"key": "bob", "quiet": "2h"})
        async with open_view() as view:
            await view.open("groups")
            row = view.page.get_by_role("row", name="ann")
            await expect(row).to_contain_text("3 / 50")
            await expect(row).to_contain_text("in 59 min")
            await expect(row.locator(".progress span").first).to_have_attribute("style", "width: 6%;")
            await view.open("topics/flow-groups/groups")
            await expect(view.page.locator("tbody tr")).to_have_count(2)
            client.send("flow-groups", {"comment": 4}, merge={"key": "ann", "quiet": "1h", "max_items": 50})
            await expect(row).to_contain_text("4 / 50")
            await row.get_by_role("link", name="ann").click()
            await expect(view.page.get_by_role("heading", name="Items (4)")).to_be_visible()


async def test_a_merge_group_shows_how_far_its_wait_has_come(open_view: OpenView, shop: str) -> None:
    async def answer(route: Route) -> None:
        found: dict[str, Any] = await (await route.fetch()).json()
        now_ms = int(time.time() * 1000)
        for group in found["groups"]:
            group |= {"updated_at_ms": now_ms - 900_000, "due_at_ms": now_ms + 2_700_000}
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    with Client(shop) as client:
        client.send("flow-wait", 1, merge={"key": "ann", "quiet": "1h", "max_items": 50})
    async with open_view() as view:
        await view.page.route("**/groups?*", answer)
        await view.open("topics/flow-wait/groups")
        wait = view.page.get_by_role("row", name="ann").locator(".progress span").nth(1)
        await expect(wait).to_have_attribute("style", re.compile(r"^width: 25(\.\d+)?%"))
        await view.page.unroute_all(behavior="wait")


async def test_workers_show_what_they_run_since_when_and_who_is_not_consuming(open_view: OpenView, shop: str) -> None:
    now_ms = int(time.time() * 1000)
    long, short = (
        {"topic": "emails", "id": f"mail-{n}", "since_ms": now_ms - ms} for n, ms in ((7, 90_000), (8, 9000))
    )
    report(shop, "flow-worker", running=[long, short])
    async with open_view() as view:
        await view.open("workers")
        row = view.page.get_by_role("row", name="flow-worker")
        await expect(row).to_contain_text("busy")
        for_how_long = row.get_by_text(re.compile("^for "))
        await expect(for_how_long).to_have_text([re.compile("for 1 min"), re.compile(r"for \d+ s")])
        await expect(for_how_long).to_have_class(["amber-text", "dim"])  # what takes long stands out
        await expect(row.get_by_role("link", name="mail-7")).to_be_visible()
        await expect(row).to_contain_text("host-1:7")
        await view.open("topics/emails")  # the topic names them, too
        await expect(view.page.locator(".consumers")).to_contain_text(re.compile(r"flow-worker seen (now|\d+ s ago)"))
        await view.open("workers")
        panel = view.page.locator("section", has=view.page.get_by_role("heading", name="Nobody consumes"))
        await expect(panel.get_by_text("invoices: 2 ready")).to_be_visible()
        await row.get_by_role("link", name="mail-7").click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("mail-7")
