"""Live data: a change is shown because an event told of it, rows do not jump, and without events a timer reads."""

from __future__ import annotations

import asyncio

from playwright.async_api import expect

from dueline import Client, new_job

from .conftest import OpenView
from .kit import View

HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


async def stopped_clock(view: View, place: str) -> None:
    """Open a view, wait until its stream of events is open, and stop its clock: from then on its timers run only when
    a test moves the clock. What was read on opening is over by then."""
    await view.page.clock.install()
    async with view.page.expect_response("**/v1/events*") as stream:
        await view.open(place)
    assert (await stream.value).status == 200
    await expect(view.page.locator(".skel")).to_have_count(0)
    await view.page.clock.pause_at(await view.page.evaluate("Date.now()") / 1000 + 5)  # an installed clock still runs


async def moved_until(view: View, text: str, within_ms: int) -> bool:
    """Move the page's clock in small steps, up to this far, until the text is there."""
    for _ in range(within_ms // 50):
        if await view.text(text).count():
            return True
        await view.page.clock.run_for(50)
        await asyncio.sleep(0.1)  # for the network, which has no clock
    return False


async def test_a_change_is_shown_by_its_event_long_before_the_timer(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("live-one", 1, id="first", delay="1h")
        async with open_view() as view:
            await stopped_clock(view, "topics/live-one/jobs/first")
            client.fire("live-one", "first")
            # The timer of this page is 3 s, but draws only while events come; it reads after 15 s.
            assert await moved_until(view, "waits for a consumer", 6000)


async def test_many_changes_wait_for_a_click_so_that_rows_do_not_jump(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("live-many", 1, id="first", delay="1h")
        async with open_view() as view:
            await stopped_clock(view, "topics/live-many")
            await expect(view.page.locator("tbody tr")).to_have_count(1)
            client.send_many("live-many", [new_job(n, id=f"j{n}", delay="2h") for n in range(20)])
            assert await moved_until(view, "changes, show", 6000)
            await expect(view.page.locator("tbody tr")).to_have_count(1)
            await view.button("changes, show").click()
            await expect(view.page.locator("tbody tr")).to_have_count(21)


async def test_a_listed_job_becomes_ready_without_an_event(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("live-due", 1, id="first", delay="3s")
        async with open_view() as view:
            await stopped_clock(view, "topics/live-due")
            await expect(view.page.locator("tbody .state")).to_have_text("scheduled")
            client.send("live-due-too", 1, at=client.get("live-due", "first").due_at)
            assert client.pull("live-due-too", wait="20s")  # the time has come
            assert await moved_until(view, "1 job is ready", 20_000)
            await expect(view.page.locator("tbody .state")).to_have_text("ready")


async def test_a_hidden_tab_ends_its_stream_and_begins_it_again(open_view: OpenView) -> None:
    async with open_view() as view:
        await stopped_clock(view, "topics")
        async with view.page.expect_event("requestfailed", lambda request: "/v1/events" in request.url):
            await view.page.evaluate(HIDE, True)
        async with view.page.expect_request("**/v1/events*"):
            await view.page.evaluate(HIDE, False)


async def test_without_a_stream_the_timer_reads(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("live-none", 1, id="first", delay="1h")
        async with open_view() as view:
            await view.page.route("**/v1/events*", lambda route: route.abort())
            await view.open("topics/live-none/jobs/first")
            await expect(view.lead).to_contain_text("Will be due")
            client.fire("live-none", "first")
            await expect(view.lead).to_contain_text("waits for a consumer")
            view.faults = [fault for fault in view.faults if "ERR_FAILED" not in fault]


async def test_the_button_live_stops_the_stream_and_all_reading(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("live-stop", 1, id="first", delay="1h")
        async with open_view() as view:
            await stopped_clock(view, "topics/live-stop/jobs/first")
            async with view.page.expect_event("requestfailed", lambda request: "/v1/events" in request.url):
                await view.button("Refresh").click()
            await expect(view.button("Refresh")).to_contain_text("stopped")
            calls: list[str] = []
            view.page.on("request", lambda request: calls.append(request.url))
            client.fire("live-stop", "first")
            await view.page.clock.run_for(60_000)
            assert calls == []
            await expect(view.lead).to_contain_text("Will be due")
            await view.button("Refresh").click()
            await expect(view.lead).to_contain_text("waits for a consumer")
