"""How every page looks: nothing is cut off on a phone, everyone can read it, and pictures of it for the docs.

DUELINE_IMAGES=docs/images make test-browser       # replaces the pictures of the docs
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from playwright.async_api import expect

from dueline import Client
from dueline.testing.process import DUELINE, READY

from .conftest import OpenView
from .kit import DESK, PHONE, View, add

AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
LONG_TOPIC, LONG_ID = "an-unusually-long-name-of-a-topic-" + "x" * 90, "y" * 120
LONGEST = "z" * 255  # of another protocol
PAGES = {
    "overview": "",
    "topics": "topics",
    "topic": "topics/order-timeouts",
    "forecast": "forecast",
    "topic-forecast": "topics/reminders/forecast?range=week",
    "job": "topics/payment-notify/jobs/pay-20417",
    "order": "topics/order-timeouts/jobs/order-4711",
    "jobs": "jobs",
    "dead": "topics/emails/dead",
    "dead-letters": "dead",
    "policy": "topics/order-timeouts/policy",
    "push": "topics/payment-notify/push",
    "targets": "push",
    "schedules": "schedules",
    "schedule": "schedules/daily-report",
    "merge-groups": "groups",
    "topic-groups": "topics/digests/groups",
    "workers": "workers",
    "store": "store",
    "access": "access",
    "audit": "access/audit",
    "more": "more",
    "long-topic": f"topics/{LONG_TOPIC}?ns=edge",
    "long-name": f"topics/{LONG_TOPIC}/jobs/{LONG_ID}?ns=edge",
    "long-overview": "?ns=edge",
    "longest-topics": "topics?ns=youzan",
    "longest-topic": f"topics/{LONGEST}?ns=youzan",
    "longest-name": f"topics/{LONGEST}/jobs/{LONGEST}?ns=youzan",
    "longest-forecast": "forecast?ns=youzan",
    "longest-jobs": "jobs?ns=youzan",
    "long-schedule": "schedules?ns=edge",
    "empty": "?ns=nothing",
    "empty-topics": "topics?ns=nothing",
    "empty-groups": "groups?ns=nothing",
    "empty-schedules": "schedules?ns=nothing",
    "empty-workers": "workers?ns=nothing",
    "no-topic": "topics/no-such-topic",
}
PARTS = 4  # tests that share these pages, because one would take too long on a busy machine
PICTURES = ("overview", "forecast", "job", "dead", "push", "schedules", "topic", "topics", "merge-groups", "workers")
PHONE_PICTURES = ("overview", "forecast", "job", "topics")


@contextmanager
def begun_demo() -> Iterator[str]:
    """The world that newcomers see, and a namespace with the longest names."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DUELINE_")}
    command = [*DUELINE, "demo", "--port", "0", "--still"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=kept) as process:
        try:
            assert process.stdout is not None
            found = READY.search(process.stdout.readline())
            assert found is not None, process.wait()
            url = found[1].removesuffix("/ui/")
            with Client(url, namespace="edge") as client:
                client.send(LONG_TOPIC, {"long": True}, id=LONG_ID, delay="3h", tags=["t" * 60])
                client.put_schedule("s" * 100, LONG_TOPIC, "x", every="1h")
            add(url, LONGEST, LONGEST, "w" * 255)
            yield url
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    with begun_demo() as url:
        yield url


MISSING = {"no-topic"}  # says so instead of its data


async def settled(view: View, name: str) -> None:
    """Open a page and wait for its data: a page that only says what went wrong would fit everywhere, too."""
    await view.open(PAGES[name])
    await expect(view.page.locator(".skel")).to_have_count(0)
    await expect(view.page.locator("main .panel").first).to_be_visible()
    await expect(view.page.locator("main :is([role=alert], .stale)")).to_have_count(0)
    if name not in MISSING:
        await expect(view.lead.or_(view.page.locator("main .list")).first).to_be_visible()


WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT = "[...document.querySelectorAll('.wrap')].map(one => one.scrollWidth - one.clientWidth).filter(by => by > 0)"
UNREADABLE = """rules => axe.run({resultTypes: ['violations'], ...(rules ? {runOnly: rules} : {})}).then(
    found => found.violations.map(
        one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' ')}`))"""


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_page_fits_and_can_be_read_by_everyone(part: int, open_view: OpenView, demo: str) -> None:
    """No page is wider than a phone, no table is cut off on a desk, and axe finds nothing; in dark colours it looks at
    the contrast again."""
    found: dict[str, object] = {}
    axe = AXE.read_text() if AXE.exists() else ""
    async with open_view(demo, bypass_csp=True) as view:
        view.refusals = (404,)
        page = view.page
        for name in list(PAGES)[part::PARTS]:
            await page.set_viewport_size(DESK)
            await settled(view, name)
            found[f"{name}, cut off"] = await page.evaluate(CUT)
            if axe:
                await page.evaluate(axe)
                found[f"{name}, light"] = await page.evaluate(UNREADABLE, None)
                await page.evaluate("document.documentElement.dataset.theme = 'dark'")
                found[f"{name}, dark"] = await page.evaluate(UNREADABLE, ["color-contrast"])
            await page.set_viewport_size(PHONE)
            found[f"{name}, phone"] = await page.evaluate(WIDER)
    assert {name: what for name, what in found.items() if what} == {}


def number(rate: str) -> float:
    return {"–": -1.0, "< 0.1": 0.05}.get(rate) or float(rate)


async def test_the_list_of_topics_says_how_fast_and_how_late_each_is(open_view: OpenView, demo: str) -> None:
    """From the charts that the demo wrote, as if several servers had counted."""
    async with open_view(demo) as view:
        await view.open("topics?sort=done")
        row = view.page.locator("tbody tr", has_text="order-timeouts")
        await expect(row.locator("td").nth(6)).to_have_text(re.compile(r"^\d+\.\d$"))
        await expect(row.locator("td").nth(8)).to_have_text(re.compile(r"^\d+ ms$"))
        rates = [number(text) for text in await view.page.locator("tbody td:nth-child(7)").all_inner_texts()]
        assert rates == sorted(rates, reverse=True)
        assert rates[0] > rates[-1]
        await expect(view.page.locator("tr", has_text="coupons").locator("td").nth(6)).to_have_text("0")
        await row.get_by_role("link").click()
        await expect(view.text(re.compile(r"\d\.\d done/s · Late p99 \d+ ms"))).to_be_visible()


async def test_the_overview_opens_with_the_last_24_hours(open_view: OpenView, demo: str) -> None:
    """What happened before the page was loaded: the ring in the store has it."""
    async with open_view(demo) as view:
        async with view.page.expect_response("**/v1/charts?*") as answer:
            await view.open()
        series = (await (await answer.value).json())["series"]
        for tile, name in (("Sends/s", "sends"), ("Failures/s", "failures"), ("Dead letters", "dead")):
            known = [one for one in series[name] if one is not None]
            assert len(known) > 1400  # of 1,440 minutes
            panel = view.page.locator(".tiles .tile", has_text=tile)
            await expect(panel.locator("polyline")).not_to_have_count(0)
            shown = re.search(r"([\d.,]+)( K| M)? in 24 h", await panel.inner_text())
            assert shown is not None
            value = float(shown[1].replace(",", "")) * {None: 1, " K": 1e3, " M": 1e6}[shown[2]]
            assert value == pytest.approx(sum(known), rel=0.05)


@pytest.mark.skipif(AXE.exists(), reason="axe-core is installed: the test above used it")
def test_the_check_for_accessibility_was_left_out() -> None:
    pytest.skip("axe-core is not installed: make ui")


async def test_pictures(open_view: OpenView, demo: str, tmp_path: Path) -> None:
    kept = os.environ.get("DUELINE_IMAGES")
    folder = tmp_path if kept is None else Path(kept)
    folder.mkdir(exist_ok=True)
    chinese = folder if has_chinese_font() else tmp_path
    with nullcontext(demo) if kept is None else await fresh_demo() as url:
        for names in (("overview",), PICTURES[1:]):
            for scheme in ("light", "dark"):
                async with open_view(url, color_scheme=scheme, viewport=DESK) as view:
                    for name in names:
                        await picture(view, name, folder / f"{name}-{scheme}.png")
            async with open_view(url, viewport=PHONE) as view:
                for name in set(PHONE_PICTURES) & set(names):
                    await picture(view, name, folder / f"{name}-phone.png")
            if "overview" in names:
                async with open_view(url, locale="zh-CN") as view:
                    await picture(view, "overview", chinese / "overview-chinese.png")
    assert len(list(folder.glob("*.png"))) >= 2 * len(PICTURES) + len(PHONE_PICTURES) + 1


async def fresh_demo() -> AbstractContextManager[str]:
    """One that begins with a minute: the overview shows the last minute that is over, and nothing happens in a demo
    that stands still."""
    await asyncio.sleep(60 - time.time() % 60)
    return begun_demo()


def has_chinese_font() -> bool:
    """Without one the picture would show empty boxes, so that of the docs stays as it is."""
    fonts = shutil.which("fc-list")
    return fonts is None or subprocess.run([fonts, ":lang=zh"], capture_output=True, check=True).stdout != b""


async def picture(view: View, name: str, path: Path) -> None:
    await settled(view, name)
    if name == "overview":  # the lines of 24 hours and the states of push targets come with calls of their own
        await expect(view.page.locator("svg.spark")).to_have_count(6)
        await expect(view.page.locator(".item.red").first).to_be_visible()
    if name == "workers":  # they report every 10 s
        await expect(view.page.locator("tbody").get_by_text("busy", exact=True)).to_have_count(2)
    await view.page.screenshot(path=path)
