"""What people do with the dashboard, click by click."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Route, expect

from dueline import Client, new_job

from .conftest import OpenView
from .kit import PHONE, picture_of_this_test

TOPS = "all => all.map(one => Math.round(one.getBoundingClientRect().top))"


async def test_the_overview_says_in_words_what_needs_a_person(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open()
        await expect(view.lead).to_contain_text(re.compile(r"\d+ (dead letters|jobs died)"))  # once charts are written
        await expect(view.page.locator(".badge", has_text="staging")).to_be_visible()
        attention = view.page.locator("section", has=view.page.get_by_role("heading", name="Needs attention"))
        await attention.get_by_text("Nobody is consuming invoices").click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("invoices")
        await view.page.go_back()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("Overview")


async def test_a_job_is_sent_fired_moved_edited_and_cancelled(open_view: OpenView, shop: str) -> None:
    async with open_view() as view:
        await view.open("topics/emails")
        await view.button("Send a job").click()
        await view.dialog.get_by_label("Topic").fill("flow-jobs")
        await view.dialog.get_by_label("Id", exact=True).fill("one")
        await view.dialog.get_by_label("Due in").fill("2h")
        await view.dialog.get_by_label("Body, as JSON").fill('{"n": 12345678901234567890}')
        await view.dialog.get_by_label("Tags").fill("a, b")
        await view.button(re.compile("^Send$")).click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("one")
        await expect(view.lead).to_contain_text("Will be due in 1 h 59 min")
        await expect(view.page.locator("pre.code").first).to_have_text('{\n  "n": 12345678901234567890\n}')

        await view.button("Reschedule").click()
        await view.dialog.get_by_label("Due in").fill("3d")
        await view.dialog.get_by_role("button", name="Reschedule").click()
        await expect(view.lead).to_contain_text("in 2 d 23 h")

        await view.button("Edit").click()
        body = view.dialog.get_by_label("Body, as JSON")
        await body.fill("{")
        await expect(view.dialog.get_by_text("This is not valid JSON.")).to_be_visible()
        await body.fill('{"n": 98765432109876543210}')
        await view.dialog.get_by_role("button", name="Save").click()
        await expect(view.page.locator("pre.code").first).to_contain_text("98765432109876543210")

        await view.button("Fire now").click()
        await expect(view.lead).to_contain_text("waits for a consumer")
        await view.button("Cancel the job").click()
        await view.dialog.get_by_role("button", name="Cancel the job").click()
        await expect(view.lead).to_contain_text("Was cancelled.")
    with Client(shop) as client:
        assert client.get("flow-jobs", "one").state == "cancelled"


async def test_a_refused_change_says_why_and_changes_nothing(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-refused", 1, id="a", delay="1h")
        async with open_view() as view:
            view.refusals = (400,)
            await view.open("topics/flow-refused/jobs/a")
            await view.button("Reschedule").click()
            await view.dialog.get_by_label("Due in").fill("soon")
            await view.dialog.get_by_role("button", name="Reschedule").click()
            await expect(view.dialog.get_by_role("alert")).to_contain_text("delay")
        assert client.get("flow-refused", "a").version == 1


async def test_jobs_are_filtered_by_the_address_and_cancelled_after_a_count(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send_many(
            "flow-bulk", [new_job(n, id=f"j{n}", delay="1h", tags=["odd" if n % 2 else "even"]) for n in range(9)]
        )
        async with open_view() as view:
            await view.open("topics/flow-bulk?tag=odd")
            await expect(view.page.locator("tbody tr")).to_have_count(4)
            await view.button("Cancel all that match…").click()
            await expect(view.dialog).to_contain_text("4 jobs of flow-bulk match now.")
            assert client.topic("flow-bulk").counts.scheduled == 9  # nothing was done yet
            await view.dialog.get_by_role("button", name="Cancel the jobs").click()
            await expect(view.text("No job matches.")).to_be_visible()
            assert client.topic("flow-bulk").counts.scheduled == 5
            await view.open("topics/flow-bulk?state=scheduled")
            await view.page.get_by_label("Choose j0", exact=True).check()
            await view.button("Cancel these…").click()
            await view.dialog.get_by_role("button", name="Cancel the jobs").click()
            await expect(view.page.locator("tbody tr")).to_have_count(4)


async def test_above_a_thousand_jobs_the_name_of_the_topic_must_be_typed(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send_many("flow-many", [new_job(n, id=f"j{n}", delay="1h", tags=["x"]) for n in range(1001)])
        async with open_view() as view:
            await view.open("topics/flow-many?tag=x")
            await view.button("Cancel all that match…").click()
            cancel = view.dialog.get_by_role("button", name="Cancel the jobs")
            await expect(view.dialog).to_contain_text("1,001 jobs")
            await expect(cancel).to_be_disabled()
            await view.dialog.get_by_label("Type the name of the topic").fill("flow-many")
            await cancel.click()
            await expect(view.text("No job matches.")).to_be_visible()
        assert client.topic("flow-many").counts.scheduled == 0


async def test_a_long_change_shows_how_far_it_is(open_view: OpenView, shop: str) -> None:
    """By calls of 200 jobs; the second one has to wait here until the progress of the first is seen."""
    with Client(shop) as client:
        client.send_many("flow-progress", [new_job(n, id=f"p{n}") for n in range(450)])
        client.release_many(client.pull("flow-progress", max=450), error="no", discard=True)
        seen, calls = asyncio.Event(), 0

        async def wait(route: Route) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                await seen.wait()
            await route.continue_()

        async with open_view() as view:
            await view.page.route("**/dead/revive", wait)
            await view.open("topics/flow-progress/dead?reason=rejected")
            await view.button("Revive these…").click()
            await view.dialog.get_by_role("button", name="Revive the jobs").click()
            progress = view.dialog.get_by_role("progressbar")
            await expect(progress).to_have_attribute("aria-valuenow", "200")
            await expect(view.dialog).to_contain_text("200 of 450")
            seen.set()
            await expect(view.text("450 jobs were changed")).to_be_visible()
        assert (client.topic("flow-progress").counts.ready, calls) == (450, 3)


async def test_dead_letters_are_grouped_by_error_and_revived_or_purged(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send_many("flow-dead", [new_job(n, id=f"d{n}") for n in range(6)])
        for job in client.pull("flow-dead", max=6):
            client.release(
                job, error=f"timeout after {job.id[1:]} s" if job.id < "d4" else "no such user", discard=True
            )
        async with open_view() as view:
            await view.open("topics/flow-dead/dead")
            bars = view.page.get_by_role("row", name="timeout after").locator(".mini rect")
            heights = await bars.evaluate_all("all => all.map(one => Number(one.getAttribute('height')))")
            assert heights == [0.5] * 23 + [20]  # hour by hour, the newest last
            await view.button(re.compile("timeout after")).click()
            await expect(view.text("4 jobs with this error")).to_be_visible()
            await view.button("Revive these…").click()
            await view.dialog.get_by_role("button", name="Revive the jobs").click()
            await expect(view.button(re.compile("timeout after"))).to_have_count(0)
            assert (client.topic("flow-dead").counts.ready, client.topic("flow-dead").counts.dead) == (4, 2)
            await view.button("Purge all…").click()
            await expect(view.dialog).to_contain_text("2 jobs of flow-dead match now.")
            await view.dialog.get_by_role("button", name="Purge the jobs").click()
            await expect(view.text("No job has died.")).to_be_visible()
        assert client.topic("flow-dead").counts.dead == 0


async def test_one_job_of_a_group_of_dead_letters_is_shown_whole(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send_many("flow-example", [new_job({"n": 12345678901234567890}, id=f"e{n}") for n in range(3)])
        for job in client.pull("flow-example", max=3):
            client.release(job, error="it broke\n  at line 7", discard=True)
    async with open_view() as view:
        await view.open("topics/flow-example/dead")
        await expect(view.page.get_by_role("img", name="3 in the last 24 hours")).to_be_visible()
        await expect(view.text("An example")).to_have_count(0)
        await view.button("it broke").click()
        example = view.page.locator("section", has=view.page.get_by_role("heading", name="An example"))
        await expect(example).to_contain_text("at line 7")
        await expect(example.locator("pre.code")).to_have_text('{\n  "n": 12345678901234567890\n}')
        await example.get_by_role("link", name=re.compile("^e")).click()
        await expect(view.lead).to_contain_text("a consumer rejected it")


async def test_a_topic_is_paused_until_a_time_and_resumed(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-pause", 1, delay="1h")
        async with open_view() as view:
            await view.open("topics/flow-pause")
            await view.button("Pause").click()
            await view.dialog.get_by_label("For how long").fill("8h")
            await view.dialog.get_by_role("button", name="Pause").click()
            await expect(view.lead).to_contain_text("Paused until in 7 h 59 min")
            assert client.topic("flow-pause").paused
            await view.button("Resume").click()
            await expect(view.lead).not_to_contain_text("Paused")
        assert not client.topic("flow-pause").paused


async def test_a_policy_is_changed_and_the_rest_of_it_stays(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.set_topic("flow-policy", lease="1m", max_attempts=5)
        async with open_view() as view:
            await view.open("topics/flow-policy/policy")
            await expect(view.page.get_by_label("Maximum attempts")).to_have_value("5")
            await view.page.get_by_label("Maximum attempts").fill("7")
            await view.page.get_by_label("Retry ladder").fill("2m, 10m")
            await view.button("Save").click()
            await expect(view.text("Saved")).to_be_visible()
        policy = client.topic("flow-policy").policy
        assert (policy["lease_ms"], policy["max_attempts"], policy["retry"]) == (60_000, 7, {"ladder": ["2m", "10m"]})


async def test_the_forecast_counts_every_job_and_a_bar_lists_its_jobs(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send_many("flow-due", [new_job(n, id=f"f{n}", delay=60 * 30 + n) for n in range(5)])
    async with open_view() as view:
        await view.open("topics/flow-due/forecast?range=day")
        await expect(view.text("5 jobs fall due in this range; 0 later.")).to_be_visible()
        await view.button("Next minute").click()
        await expect(view.text("Nothing falls due in this range.")).to_be_visible()
        await view.button("Next 7 days").click()
        await view.page.get_by_role("link", name=re.compile("5 jobs")).click()
        await expect(view.page.locator("tbody tr")).to_have_count(5)


async def test_search_finds_a_topic_by_a_part_and_a_job_by_its_id(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open()
        await view.page.keyboard.press("/")
        await view.page.keyboard.type("i")
        await expect(view.page.locator(".found a").nth(2)).to_be_visible()
        icons = await view.page.locator(".found .icon").evaluate_all(TOPS)
        assert len(icons) == len(set(icons))  # each beside its name
        await view.page.keyboard.press("Backspace")
        await view.page.keyboard.type("thumb")
        await view.page.get_by_role("link", name="thumbnails").first.click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("thumbnails")
        view.refusals = (404,)
        await view.page.keyboard.press("/")
        await view.page.keyboard.type("order-4711")
        await view.page.keyboard.press("Enter")
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("order-4711")
        await view.page.keyboard.press("/")
        await view.page.keyboard.type("no-such-thing")
        await view.page.keyboard.press("Enter")
        await expect(view.text("no topic has a job with this id")).to_be_visible()
        await view.page.get_by_label("Search").fill("vip")
        await view.page.get_by_role("link", name="Jobs with the tag vip").click()
        await expect(view.page.locator("tbody tr")).to_have_count(1)
        await expect(view.page.get_by_role("link", name="order-4711")).to_be_visible()


async def test_no_more_than_four_calls_are_in_flight(open_view: OpenView) -> None:
    """The search asks every topic for the id."""
    held: list[str] = []
    four, go_on = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        held.append(route.request.url)
        if len(held) >= 4:
            four.set()
        await go_on.wait()
        await route.continue_()

    async with open_view() as view:
        view.refusals = (404,)
        await view.open("topics")
        await expect(view.page.locator("tbody tr").nth(5)).to_be_visible()
        await view.page.route("**/jobs/order-4711", hold)
        await view.page.keyboard.press("/")
        await view.page.keyboard.type("order-4711")
        await view.page.keyboard.press("Enter")
        await asyncio.wait_for(four.wait(), 20)
        await view.page.evaluate("fetch('../healthz').then(answer => answer.status)")  # a fifth would be there before
        assert len(held) == 4
        go_on.set()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("order-4711")
        assert len(held) > 4
        await view.page.unroute_all(behavior="wait")


async def test_keys_go_to_pages_and_over_rows(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open()
        await view.page.keyboard.press("g")
        await view.page.keyboard.press("t")
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("Topics")
        await expect(view.page.locator("tbody tr").first).to_be_visible()
        await view.page.keyboard.press("j")
        name = await view.page.locator("tr.at td").first.inner_text()
        await view.page.keyboard.press("Enter")
        await expect(view.page.locator("h1 span")).to_have_attribute("title", name)  # its text may be shortened
        await view.page.keyboard.press("?")
        await expect(view.dialog).to_contain_text("Next and previous row")


async def test_a_person_without_a_mouse_passes_the_menu_and_opens_a_row(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open("topics")
        await expect(view.page.locator("tbody tr").nth(2)).to_be_visible()
        await view.page.keyboard.press("Tab")
        await expect(view.page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await view.page.keyboard.press("Enter")
        await view.page.keyboard.press("Tab")
        assert await view.page.evaluate("document.activeElement.closest('main') !== null")
        await view.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Topics").focus()
        await view.page.keyboard.press("j")
        await view.page.keyboard.press("j")
        link = await view.page.locator("tr.at").get_attribute("data-link") or ""
        await view.page.keyboard.press("Enter")
        await expect(view.page).to_have_url(re.compile(re.escape(link) + "$"))


async def test_the_row_of_the_keys_stays_while_its_list_changes(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open("topics?sort=scheduled")
        await expect(view.page.locator("tbody tr").nth(2)).to_be_visible()
        for _ in range(2):
            await view.page.keyboard.press("j")
        marked = view.page.locator("tr.at")
        link = await marked.get_attribute("data-link") or ""
        await view.page.get_by_role("button", name="Topic", exact=True).click()  # sorts
        await expect(marked).to_have_attribute("data-link", link)
        find = view.page.get_by_label("Filter by name")
        await find.fill("no topic has this")
        await expect(marked).to_have_count(0)
        await find.fill("")
        await expect(marked).to_have_attribute("data-link", link)
        await find.evaluate("field => field.blur()")
        await view.page.keyboard.press("Enter")
        await expect(view.page).to_have_url(re.compile(re.escape(link) + "$"))
        await view.page.go_back()
        await expect(marked).to_have_attribute("data-link", link)
        await view.page.keyboard.press("g")
        await view.page.keyboard.press("o")  # has a row with the same link
        await expect(view.page.locator(f'tr[data-link="{link}"]')).to_be_visible()
        await expect(marked).to_have_count(0)


async def test_a_hidden_tab_asks_for_nothing(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.page.clock.install()
        await view.open("topics")
        await expect(view.page.locator("tbody tr").first).to_be_visible()
        hide = """hidden => {
            Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
            document.dispatchEvent(new Event('visibilitychange'));
        }"""
        await view.page.evaluate(hide, True)
        calls: list[str] = []  # from now on: a call may have left before
        view.page.on("request", lambda request: calls.append(request.url))
        await view.page.clock.run_for(120_000)
        assert calls == []
        async with view.page.expect_request("**/v1/topics*"):
            await view.page.evaluate(hide, False)
        async with view.page.expect_request("**/v1/topics*"):  # and then again, by the clock
            await view.page.clock.run_for(20_000)


async def test_a_browser_at_the_address_of_the_server_gets_the_dashboard(open_view: OpenView, shop: str) -> None:
    async with open_view() as view:
        await view.page.goto(shop)
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("Overview")
        assert view.page.url.startswith(f"{shop}/ui/")


async def test_the_pages_without_a_place_in_the_bar_of_a_phone_are_behind_more(open_view: OpenView) -> None:
    async with open_view(viewport=PHONE) as view:
        await view.open()
        bar = view.page.get_by_role("navigation", name="Pages")
        await expect(bar.get_by_role("link", name="Workers")).to_be_hidden()
        await bar.get_by_role("link", name="More").click()
        await view.page.locator("main").get_by_role("link", name="Workers").click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("Workers")
        await bar.get_by_role("link", name="Topics").click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("Topics")


async def test_a_server_that_is_gone_leaves_old_data_with_its_age(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.page.clock.install()
        await view.open()
        await expect(view.page.locator("tbody tr").first).to_be_visible()
        await view.page.context.set_offline(True)
        await view.page.clock.run_for(20_000)
        told = view.page.get_by_text("The server cannot be reached.").locator("visible=true")
        await expect(told).to_have_count(1)  # although several parts of the page could not be read
        await expect(told).to_contain_text(re.compile(r"What you see is \d+ s old"))
        await expect(view.page.locator(".stack.old tbody tr").first).to_be_visible()
        await expect(view.button("Refresh")).to_contain_text("disconnected")
        await view.page.context.set_offline(False)
        await view.page.clock.run_for(20_000)
        await expect(told).to_have_count(0)
        await expect(view.page.locator(".stack.old")).to_have_count(0)
        await expect(view.button("Refresh")).to_contain_text("live")
        view.faults = [fault for fault in view.faults if "ERR_INTERNET_DISCONNECTED" not in fault]


async def test_what_is_not_there_says_so_and_how_to_make_it(open_view: OpenView) -> None:
    async with open_view() as view:
        view.refusals = (404,)
        await view.open("topics/nothing-here")
        await expect(view.text("dueline send nothing-here")).to_be_visible()
        await expect(view.page.get_by_role("alert")).to_have_count(0)  # nothing is wrong
        await view.open("topics?ns=night")
        await expect(view.text("DUELINE_NAMESPACE=night dueline send emails")).to_be_visible()
        await view.open("topics/emails/jobs/nobody")
        await expect(view.page.get_by_role("alert")).to_contain_text("There is no such job")
        await view.open("no-page")
        await expect(view.text("There is no such page")).to_be_visible()


async def test_a_test_that_fails_leaves_a_picture(open_view: OpenView) -> None:
    async def fail() -> None:
        async with open_view() as view:
            await view.open()
            raise ZeroDivisionError

    picture = picture_of_this_test()
    picture.unlink(missing_ok=True)
    with pytest.raises(ZeroDivisionError):
        await fail()
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()


async def test_the_page_is_chinese_on_request_and_stays_so(open_view: OpenView) -> None:
    async with open_view() as view:
        await view.open()
        await view.button("中文").click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("总览")
        await view.open("topics")
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("主题")
        assert await view.page.evaluate("document.documentElement.lang") == "zh"
