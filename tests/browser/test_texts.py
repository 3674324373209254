"""Texts of other people are shown as texts: markup, scripts and control characters in every field that is stored."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest
from playwright.async_api import Route, expect

from dueline import Client, new_job
from dueline.client.errors import InvalidRequest

from ..kit.hook import Hook, ReceivedCall
from .conftest import OpenView
from .kit import add, report

CORPUS = [
    "<script>window.hacked=1</script>",
    '"><img src=x onerror=window.hacked=1>',
    "<svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "{{constructor.constructor('window.hacked=1')()}}",
    "</textarea><iframe srcdoc='<script>parent.hacked=1</script>'>",
    "\u202egnp.exe \u0000\u001b[31m \u2028 \U0001f600",
]


@pytest.fixture(scope="module")
def texts(shop: str) -> str:
    """The corpus in topics, ids and bodies of one namespace; in tags, headers, errors and token names of another."""
    for text in CORPUS:
        if "\0" not in text:
            add(shop, text, f"id {text}", text)
    with Client(shop) as client:
        for number, text in enumerate(CORPUS):
            plain = text.replace("\0", "").replace("\x1b", "").replace("\u2028", "")
            client.send(
                "texts",
                {"text": text, text: [text]},
                id=f"t{number}",
                tags=[plain[:60]],
                headers={"note": plain.strip()},
            )
        for job in client.pull("texts", max=100):
            client.release(job, error=CORPUS[int(job.id[1:])], discard=True)
        for number, text in enumerate(CORPUS[:6]):
            client.create_token(text, ["read"], expires="1h")
            tags, headers = [text[:60]], {"note": text}
            client.put_schedule(f"texts-{number}", "texts", {text: text}, every="1w", tags=tags, headers=headers)
            client.send("texts-groups", {text: text}, merge={"key": f"key-{number}", "quiet": "1h"})
            running = [{"topic": "texts", "id": f"{text}"[:100], "since_ms": 1}]
            report(shop, f"worker-{number}", host=text[:100], topics=[text[:100]], version=text[:60], running=running)
    return shop


ANYWHERE = (
    *("topics/texts/dead", "topics/texts?state=dead", "", "topics", "dead", "access", "access/audit", "store"),
    *("schedules", "schedules/texts-0", "schedules/texts-1", "groups", "workers", "jobs?state=dead", "forecast"),
)
# Pages that name only topics, schedules and merge keys of plain names; what other texts would do there is below.
WITHOUT = {"", "topics", "dead", "store", "schedules", "groups", "forecast"}
MARK = "window.hacked"  # a part of each text but the last


async def test_no_text_becomes_markup(open_view: OpenView, texts: str) -> None:
    """On every page, and the page did show one: where it would not, this would prove nothing."""
    places = dict.fromkeys((*ANYWHERE, "topics?ns=youzan", "?ns=youzan"), "")
    places |= {f"topics/texts/jobs/t{number}": CORPUS[number] for number in range(6)}
    for text in CORPUS[:6]:
        places[f"topics/{quote(text, safe='')}?ns=youzan"] = text
        places[f"topics/{quote(text, safe='')}/jobs/{quote('id ' + text, safe='')}?ns=youzan"] = text
    async with open_view() as view:
        for place, text in places.items():
            await view.open(place)
            await expect(view.page.locator(".skel")).to_have_count(0)
            await expect(view.page.locator("main [role=alert]")).to_have_count(0)
            if place not in WITHOUT:
                await expect(view.page.locator("main")).to_contain_text(text or MARK)
            assert await view.page.evaluate("window.hacked") is None, place
            await expect(view.page.locator("main :is(script, iframe, img)")).to_have_count(0)


async def test_no_answer_of_a_push_target_becomes_markup(open_view: OpenView, shop: str) -> None:
    """What it answers stands in the log of its calls, the timeline of the job and the error of the dead letter."""

    async def answer(call: ReceivedCall) -> object:
        from aiohttp import web

        return web.Response(status=410, text=CORPUS[int(call.id[1:])])

    async with Hook(answer) as hook:  # type: ignore[arg-type]
        with Client(shop) as client:
            with pytest.raises(InvalidRequest):
                client.set_push("texts-answers", url=f"{hook.url}?{CORPUS[1]}")
            client.set_push("texts-answers", url=hook.url)
            client.send_many("texts-answers", [new_job(n, id=f"a{n}") for n in range(6)])
            await hook.arrived(6)

            async def changed(route: Route) -> None:
                """An address, a secret and an error that this server refuses, as another one might send them."""
                found: dict[str, Any] = await (await route.fetch()).json()
                found |= {"url": CORPUS[1], "secrets": [CORPUS[0]], "last_error": CORPUS[2]}
                await route.fulfill(body=json.dumps(found), content_type="application/json")

            async with open_view() as view:
                await view.page.route("**/topics/texts-answers/push", changed)
                await view.open("topics/texts-answers/push")
                for text in CORPUS[:3]:
                    await expect(view.page.locator("dl.facts")).to_contain_text(text)
                for place in ("push", "jobs/a0", "jobs/a1", "jobs/a2", "dead"):
                    await view.open(f"topics/texts-answers/{place}")
                    await expect(view.page.locator("main")).to_contain_text("410")
                    if place != "dead":
                        await expect(view.page.locator("main")).to_contain_text(MARK)
                    assert await view.page.evaluate("window.hacked") is None, place
                    await expect(view.page.locator("main :is(script, iframe, img)")).to_have_count(0)
                await view.page.unroute_all(behavior="wait")
            client.remove_push("texts-answers")


async def test_names_of_workers_and_schedules_cannot_hold_markup(shop: str) -> None:
    for text in CORPUS:
        with pytest.raises(HTTPError, match="400"):
            report(shop, text)
        with Client(shop) as client, pytest.raises(InvalidRequest):
            client.put_schedule(text, "texts", {}, every="1w")


@pytest.mark.parametrize(
    ("page", "calls", "lists"), [("workers", "workers*", "workers"), ("schedules", "schedules*", "schedules")]
)
async def test_a_name_would_be_a_text_if_a_server_allowed_it(
    open_view: OpenView, texts: str, page: str, calls: str, lists: str
) -> None:
    """The names that this server refuses, as another one might send them."""

    async def answer(route: Route) -> None:
        found: dict[str, Any] = await (await route.fetch()).json()
        one = found[lists][0]
        found[lists] = [{**one, "name": text} for text in CORPUS]
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    async with open_view() as view:
        await view.page.route(f"**/v1/{calls}", answer)
        await view.open(page)
        await expect(view.page.get_by_text(CORPUS[0]).first).to_be_visible()
        assert await view.page.evaluate("window.hacked") is None
        await expect(view.page.locator("main :is(script, iframe, img)")).to_have_count(0)
        await view.page.unroute_all(behavior="wait")


async def test_a_text_is_shown_as_it_is(open_view: OpenView, texts: str) -> None:
    async with open_view() as view:
        await view.open("topics/texts/jobs/t1")
        await expect(view.page.get_by_text(CORPUS[1]).first).to_be_visible()
        await view.open("topics")
        await view.page.get_by_label("Namespace").first.select_option("youzan")
        await view.page.get_by_role("link", name="Topics").first.click()
        await expect(view.page.get_by_role("link", name=CORPUS[0])).to_be_visible()
        await view.page.get_by_role("link", name=CORPUS[0]).click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text(CORPUS[0])
        await view.page.locator("tbody a").first.click()
        await expect(view.page.get_by_role("heading", level=1)).to_have_text(f"id {CORPUS[0]}")


async def test_the_browser_would_refuse_markup_from_a_string(open_view: OpenView) -> None:
    """The control: the policy of the page stops what a mistake in the page would do."""
    async with open_view() as view:
        await view.open()
        tried = "() => { try { document.body.innerHTML = '<b>x</b>'; } catch (error) { return error.name; } }"
        assert await view.page.evaluate(tried) == "TypeError"
        assert len(view.faults) == 1
        view.faults.clear()
