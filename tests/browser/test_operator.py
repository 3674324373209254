"""An operator's questions at night: from the overview to the answer, counted in steps and seconds.

A step is a click, a key, or a text that is typed. The seconds are printed (`pytest -s`), not asserted. The table in
docs/dashboard.md shows both.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.async_api import Locator, expect

from dueline import Client, new_job

from ..integration.serve_kit import served
from ..kit.hook import Hook, ReceivedCall
from .conftest import OpenView
from .kit import View


async def locked(call: ReceivedCall) -> object:
    from aiohttp import web

    return web.Response(status=503, text="the ledger is locked")


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with one thing wrong of each kind."""
    data = tmp_path_factory.mktemp("night") / "data"
    with served(data, DUELINE_PUSH__ALLOW="127.0.0.1") as url, Client(url) as client:
        client.send("order-timeouts", {"order": 4711}, id="order-4711", retry=["6h"])
        [held] = client.pull("order-timeouts")
        client.release(held, error="the payment provider answered 402")
        client.send_many("order-timeouts", [new_job(n, id=f"order-{n}", delay=3600 + n) for n in range(30)])
        client.send_many("invoices", [new_job(n) for n in range(14)])
        client.send_many("emails", [new_job(n, id=f"mail-{n}", max_attempts=1) for n in range(6)])
        for job in client.pull("emails", max=6):
            client.release(job, error="no such mailbox", discard=job.id < "mail-4")
        yield url


@dataclass
class Walk:
    """Steps from the overview to an answer."""

    view: View
    question: str
    steps: int = 0
    begun_s: float = field(default_factory=time.monotonic)

    async def click(self, what: Locator) -> None:
        self.steps += 1
        await what.click()

    async def press(self, key: str) -> None:
        self.steps += 1
        await self.view.page.keyboard.press(key)

    async def type(self, text: str) -> None:
        self.steps += 1
        await self.view.page.keyboard.type(text)

    async def choose(self, what: Locator, value: str) -> None:
        self.steps += 1
        await what.select_option(value)

    def answered(self) -> int:
        print(f"\n{self.question}: {self.steps} steps, {time.monotonic() - self.begun_s:.1f} s")
        return self.steps


async def at_overview(view: View, question: str) -> Walk:
    await view.open()
    await expect(view.page.get_by_role("heading", name="Needs attention")).to_be_visible()
    return Walk(view, question)


async def test_why_did_this_order_not_close(open_view: OpenView, night: str) -> None:
    async with open_view(night) as view:
        view.refusals = (404,)  # the search asks every topic for the id
        walk = await at_overview(view, "Why did this order not close?")
        await walk.press("/")
        await walk.type("order-4711")
        await walk.press("Enter")
        await expect(view.page.locator("main")).to_contain_text("the payment provider answered 402")
        await expect(view.lead).to_contain_text("in 5 h 59 min")
        assert walk.answered() == 3


async def test_who_is_not_consuming(open_view: OpenView, night: str) -> None:
    async with open_view(night) as view:
        walk = await at_overview(view, "Who is not consuming?")
        await expect(view.page.get_by_role("link", name="Nobody is consuming invoices: 14 ready")).to_be_visible()
        assert walk.answered() == 0


async def test_what_will_fall_due_tonight(open_view: OpenView, night: str) -> None:
    async with open_view(night) as view:
        walk = await at_overview(view, "What will fall due tonight?")
        await walk.click(view.page.get_by_role("link", name="Forecast").first)
        await expect(view.text("31 jobs fall due in this range; 0 later.")).to_be_visible()
        await expect(view.page.locator(".legend")).to_contain_text("order-timeouts 30")
        await expect(view.page.locator(".legend")).to_contain_text("retries 1")
        assert walk.answered() == 1


async def test_which_target_is_failing_and_what_did_it_answer(open_view: OpenView, night: str) -> None:
    async with Hook(locked) as hook:  # type: ignore[arg-type]
        with Client(night) as client:
            client.set_push("ledger", url=hook.url, retry=["1h"], breaker={"failures": 1, "open_ms": 3_600_000})
            client.send("ledger", 1, id="entry-1")
            await hook.arrived(1)
            async with open_view(night) as view:
                walk = await at_overview(view, "Which target is failing, and what did it answer?")
                await expect(view.lead).to_contain_text("1 push target is failing")
                await walk.click(view.page.get_by_role("link", name=re.compile("The push target of ledger is failing")))
                row = view.page.get_by_role("row", name=re.compile("entry-1"))
                await expect(row).to_contain_text("503")
                await expect(row).to_contain_text("the ledger is locked")
                await expect(view.page.get_by_text("stops for 1 h after 1 failure", exact=True)).to_be_visible()
                assert walk.answered() == 1
            client.remove_push("ledger")


async def test_revive_yesterdays_dead_of_one_reason(open_view: OpenView, night: str) -> None:
    async with open_view(night) as view:
        walk = await at_overview(view, "Revive yesterday's dead of one reason")
        await walk.click(view.page.get_by_role("link", name="emails has 6 dead letters"))
        await walk.click(view.button(re.compile("^rejected")))
        await walk.choose(view.page.get_by_label("Died"), "86400000")
        await walk.click(view.button("Revive these…"))
        await expect(view.dialog).to_contain_text("4 jobs of emails match now.")
        await walk.click(view.dialog.get_by_role("button", name="Revive the jobs"))
        await expect(view.page.get_by_role("heading", name="0 jobs")).to_be_visible()
        assert walk.answered() == 5
    with Client(night) as client:
        assert (client.topic("emails").counts.ready, client.topic("emails").counts.dead) == (4, 2)
