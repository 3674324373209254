"""Actions on one job, one target, one token: each changes what it says, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest
from playwright.async_api import expect

from dueline import Client, NotFound

from ..kit.hook import Hook
from .conftest import OpenView
from .kit import View

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


async def run(*command: str, **variables: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, env={**os.environ, **variables}
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


async def copied(view: View, name: str) -> str:
    await view.button(name).click()
    await expect(view.text("Copied").last).to_be_visible()
    return await view.page.evaluate("navigator.clipboard.readText()")


async def test_a_job_is_copied_as_a_command_and_as_a_program_that_send_it_again(open_view: OpenView, shop: str) -> None:
    body = {"text": 'it\'s "quoted" \\ $HOME `x` \n \u6d4b \U0001f600', "n": 12345678901234567890}
    with Client(shop) as client:
        client.set_topic("flow-copy", on_conflict="replace")  # an id that was used a moment ago is taken
        client.send("flow-copy", body, id="a", delay="1h", tags=["one", "it's"])
        async with open_view(permissions=["clipboard-read", "clipboard-write"]) as view:
            await view.open("topics/flow-copy/jobs/a")
            curl, code = await copied(view, "Copy as curl"), await copied(view, "Copy as Python")
        for command in (("bash", "-c", curl), (sys.executable, "-c", code)):
            client.cancel("flow-copy", "a")
            await run(*command)
            again = client.get("flow-copy", "a")
            assert (again.state, again.tags) == ("scheduled", ("one", "it's"))
            assert json.loads(bytes(again.body)) == body


async def test_a_job_of_bytes_is_copied_with_its_headers(open_view: OpenView, shop: str) -> None:
    headers = {"source": "it's a \\ shop"}
    with Client(shop) as client:
        client.set_topic("flow-bytes", on_conflict="replace")
        client.send("flow-bytes", b"\x00\xff", id="a", delay="1h", headers=headers)
        async with open_view(permissions=["clipboard-read", "clipboard-write"]) as view:
            await view.open("topics/flow-bytes/jobs/a")
            curl, code = await copied(view, "Copy as curl"), await copied(view, "Copy as Python")
        for command in (("bash", "-c", curl), (sys.executable, "-c", code)):
            client.cancel("flow-bytes", "a")
            await run(*command)
            again = client.get("flow-bytes", "a")
            assert (again.state, again.headers, again.body_base64) == ("scheduled", headers, "AP8=")


async def test_a_job_that_is_done_says_that_its_body_is_gone(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-done", {"a": 1}, id="a", delay="1h")
        client.cancel("flow-done", "a")
    async with open_view() as view:
        await view.open("topics/flow-done/jobs/a")
        await expect(view.text("The body of an ended job is not kept.")).to_be_visible()
        await expect(view.button("Copy as curl")).to_have_count(0)


async def test_a_dead_job_is_revived_and_purged_on_its_page(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-revive", 1, id="a")
        client.release(client.pull("flow-revive")[0], error="no", discard=True)
        async with open_view() as view:
            await view.open("topics/flow-revive/jobs/a")
            await expect(view.lead).to_contain_text("a consumer rejected it")
            await view.button("Revive").click()
            await expect(view.lead).to_contain_text("waits for a consumer")
            client.release(client.pull("flow-revive")[0], error="no", discard=True)
            await view.button("Purge").click()
            assert client.topic("flow-revive").counts.dead == 1  # it asks first
            await view.dialog.get_by_role("button", name="Purge").click()
            await expect(view.text("No job has died.")).to_be_visible()
        with pytest.raises(NotFound):
            client.get("flow-revive", "a")


async def test_a_push_target_is_made_edited_paused_and_removed(open_view: OpenView, shop: str) -> None:
    async with Hook() as hook:
        with Client(shop) as client:
            client.send("flow-target", 1, id="later", delay="1h")
            async with open_view() as view:
                await view.open("topics/flow-target/push")
                await view.button("Set a target").click()
                await view.dialog.get_by_label("URL").fill(hook.url)
                await view.dialog.get_by_role("button", name="Save").click()
                await expect(view.page.locator("dl.facts")).to_contain_text(hook.url)
                client.set_push(
                    "flow-target", url=hook.url, secrets=[SECRET], headers={"authorization": "Bearer abcdefghijkl"}
                )
                await view.button("Edit").click()
                await expect(view.dialog.get_by_label("URL")).to_have_value(hook.url)
                await view.dialog.get_by_label("Timeout").fill("7s")
                await view.dialog.get_by_role("button", name="Save").click()
                await expect(view.page.locator("dl.facts")).to_contain_text("7 s")
                await expect(view.page.locator("dl.facts")).to_contain_text("ZWY=")
                await expect(view.page.locator("main")).not_to_contain_text("MDEy")
                client.send("flow-target", 2, id="now")
                await hook.arrived(1)
                [received] = hook.came
                assert received.headers["authorization"] == "Bearer abcdefghijkl"
                assert "webhook-signature" in {name.lower() for name in received.headers}
                panel = view.page.locator("section", has=view.page.locator("dl.facts"))
                await panel.get_by_role("button", name="Pause").click()
                await expect(panel.get_by_role("button", name="Resume")).to_be_visible()
                assert client.push("flow-target").paused
                await panel.get_by_role("button", name="Resume").click()
                await expect(panel.get_by_role("button", name="Pause")).to_be_visible()
                await view.button("Remove").click()
                await view.dialog.get_by_role("button", name="Remove").click()
                await expect(view.button("Set a target")).to_be_visible()
            assert client.topic("flow-target").push is False


async def test_the_colours_are_chosen_and_kept(open_view: OpenView) -> None:
    async with open_view(color_scheme="light") as view:
        await view.open()
        page = view.page
        background = "getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(background)
        await view.button("Dark colours").click()
        await expect(view.button("Light colours")).to_be_visible()
        dark = await page.evaluate(background)
        await view.open("topics")
        assert await page.evaluate(background) == dark != light


async def test_a_topic_is_paused_and_resumed_and_gets_a_job_in_the_list(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-row", 1, id="a", delay="1h")
        async with open_view() as view:
            await view.open("topics?find=flow-row")
            row = view.page.locator("tbody tr")
            await view.button("Actions on flow-row").click()
            await view.dialog.get_by_role("button", name="Pause").click()
            assert not client.topic("flow-row").paused  # it asks for how long
            await view.dialog.get_by_role("button", name="Pause").click()
            await expect(row).to_contain_text("paused")
            assert client.topic("flow-row").paused
            await view.button("Actions on flow-row").click()
            await view.dialog.get_by_role("button", name="Resume").click()
            await expect(row).not_to_contain_text("paused")
            await view.button("Actions on flow-row").click()
            await view.dialog.get_by_role("button", name="Send a job").click()
            await view.dialog.get_by_label("Id", exact=True).fill("b")
            await view.dialog.get_by_role("button", name="Send", exact=True).click()
            await expect(view.page.get_by_role("heading", level=1)).to_have_text("b")
        assert client.get("flow-row", "b").state == "scheduled"


async def test_a_topic_is_deleted_only_without_jobs_and_after_a_question(open_view: OpenView, shop: str) -> None:
    with Client(shop) as client:
        client.send("flow-delete", 1, id="a", delay="1h")
        async with open_view() as view:
            view.refusals = (409,)
            await view.open("topics/flow-delete/policy")
            await view.button("Delete").click()
            await view.dialog.get_by_role("button", name="Delete").click()
            await expect(view.dialog.get_by_role("alert")).to_contain_text("topic_not_empty")
            client.cancel("flow-delete", "a")
            await view.dialog.get_by_role("button", name="Delete").click()
            await expect(view.page.get_by_role("heading", level=1)).to_have_text("Topics")
        assert "flow-delete" not in [one.topic for one in client.topics()]
