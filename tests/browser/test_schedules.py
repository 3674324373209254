"""Schedules in the dashboard: what they will do, and every change of them."""

from __future__ import annotations

from playwright.async_api import expect

from dueline import Client

from .conftest import OpenView

TIMES = "all => all.map(one => Date.parse(one.dateTime))"


async def test_schedules_are_listed_in_words_and_a_page_shows_the_next_ten_runs(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.put_schedule("flow-daily", "flow-reports", {"n": 1}, cron="0 9 * * MON-FRI", tz="Europe/Madrid")
        client.put_schedule("flow-a-year", "flow-reports", 1, cron="0 0 1 1 *")
        client.put_schedule("flow-soon", "flow-reports", 1, every="10m")
        by_time = [one.name for one in sorted(client.schedules(), key=lambda one: one.next_at_ms or 0)]
        assert by_time != sorted(by_time)
        async with open_view() as view:
            await view.open("schedules")
            await expect(view.lead).to_contain_text("the next run is")
            row = view.page.get_by_role("row", name="flow-daily")
            await expect(row).to_contain_text("Monday to Friday at 09:00 Europe/Madrid")
            assert await view.page.locator("tbody tr a.name[href*=schedules]").all_text_contents() == by_time
            await row.get_by_role("link", name="flow-daily").click()
            await expect(view.lead).to_contain_text("Runs Monday to Friday at 09:00 (Europe/Madrid); next in")
            shown = await view.page.locator(".runs time").evaluate_all(
                "all => all.map(one => Date.parse(one.dateTime))"
            )
        assert shown == [int(at.timestamp() * 1000) for at in client.next_occurrences("flow-daily")]


async def test_a_schedule_is_run_paused_resumed_and_deleted(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.put_schedule("flow-weekly", "flow-weekly-jobs", {"n": 1}, every="1w")
        async with open_view() as view:
            await view.open("schedules/flow-weekly")
            await view.button("Run now").click()
            await expect(view.text("A job was sent")).to_be_visible()
            assert client.topic("flow-weekly-jobs").counts.ready == 1
            await view.button("Pause").click()
            await expect(view.lead).to_contain_text("Paused. It would run every 7 d.")
            await expect(view.text("these are the runs that it would have")).to_be_visible()
            await view.button("Resume").click()
            await expect(view.lead).to_contain_text("Runs every 7 d; next")
            await view.button("Delete").click()
            await view.dialog.get_by_role("button", name="Delete").click()
            await expect(view.page.get_by_role("heading", level=1)).to_have_text("Schedules")
        assert "flow-weekly" not in [one.name for one in client.schedules()]


async def test_an_edit_shows_the_next_ten_runs_before_it_is_saved(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        body = {"big": 12345678901234567890, "text": "é"}
        client.put_schedule("flow-edit", "flow-edited", body, cron="0 3 * * *", tags=["night"], retry=["1m"])
        async with open_view() as view:
            view.refusals = (400,)
            await view.open("schedules/flow-edit")
            await view.button("Edit").click()
            preview = view.dialog.get_by_role("region", name="The next ten runs")
            await expect(preview.locator("li")).to_have_count(10)
            await view.dialog.get_by_role("textbox", name="Cron expression").fill("61 * * * *")
            await expect(preview.get_by_role("alert")).to_contain_text("cron")
            await view.dialog.get_by_role("button", name="Save").click()
            await expect(view.dialog.get_by_role("alert")).to_have_count(2)  # that of the preview, and the refusal
            await view.dialog.get_by_role("textbox", name="Cron expression").fill("30 4 * * *")
            await expect(view.dialog.get_by_text("every day at 04:30")).to_be_visible()
            await expect(preview.locator("li").first).to_contain_text("04:30:00")
            assert client.schedule("flow-edit").cron == "0 3 * * *"  # only shown
            await view.dialog.get_by_role("button", name="Save").click()
            await expect(view.lead).to_contain_text("every day at 04:30")
        saved = client.schedule("flow-edit")
        assert (saved.cron, saved.job.tags, saved.job.retry) == ("30 4 * * *", ("night",), {"ladder": ["1m"]})
        assert b"12345678901234567890" in bytes(saved.job.body)  # type: ignore[arg-type]


async def test_a_schedule_is_made(open_view: OpenView, shop: str) -> None:
    async with open_view(timezone_id="Asia/Shanghai") as view:
        await view.open("schedules")
        await view.button("Make a schedule").click()
        preview = view.dialog.get_by_role("region", name="The next ten runs")
        await expect(preview).to_contain_text("Fill in a name")
        await view.dialog.get_by_label("Name", exact=True).fill("flow-made")
        await view.dialog.get_by_label("Topic").fill("flow-made-jobs")
        await expect(preview.locator("li")).to_have_count(10)
        await view.dialog.get_by_label("Runs by").select_option("every")
        await view.dialog.get_by_role("textbox", name="Interval").fill("90m")
        await view.dialog.get_by_label("While the last job is alive").select_option("skip")
        await expect(preview.locator("li")).to_have_count(10)
        await view.dialog.get_by_role("button", name="Save").click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text("flow-made")
    with Client(shop) as client:
        made = client.schedule("flow-made")
    assert (made.topic, made.every, made.overlap, made.cron) == ("flow-made-jobs", "90m", "skip", None)
