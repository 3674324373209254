"""A headless Chromium, a view of the dashboard in it, and a world of jobs to look at.

A `View` is one tab. It notes what a person would not see: errors in the console, and requests to other hosts. `close`
fails if there were any. What a person would have seen when a test failed is kept as a picture in FAILURES.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

from playwright.async_api import Browser, BrowserContext, Error, Locator, Page, expect

from dueline import Client, new_job

QUIET = (
    "--no-sandbox",  # CI runs as root
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
expect.set_options(timeout=20_000)
DESK = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
FAILURES = Path(__file__).parents[2] / ".pytest_cache" / "browser"


@dataclass
class View:
    """One tab at a server. `refusals`: statuses that the test expects, which the browser also writes to its console."""

    page: Page
    url: str
    refusals: tuple[int, ...] = ()
    faults: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", lambda message: self._said(message.type, message.text))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", lambda request: self._asked(request.url))

    def _said(self, kind: str, text: str) -> None:
        expected = any(f"status of {status}" in text for status in self.refusals)
        if kind in ("error", "warning") and not expected:
            self.faults.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        if not url.startswith(self.url):
            self.faults.append(f"request to {url}")

    async def open(self, path: str = "") -> None:
        """Show a view: the part of its address after "#"."""
        await self.page.goto("about:blank")
        await self.page.goto(f"{self.url}/ui/#/{path}")
        await expect(self.page.locator("h1").first).to_be_visible()

    def text(self, text: str) -> Locator:
        return self.page.get_by_text(text)

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name)

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    @property
    def lead(self) -> Locator:
        """The sentence that says whether all is well."""
        return self.page.locator(".head .lead")


@asynccontextmanager
async def opened(browser: Browser, url: str, **options: object) -> AsyncIterator[View]:
    """A tab with a new profile. `options` are those of a browser context. Fails if the page made errors."""
    context: BrowserContext = await browser.new_context(**({"viewport": DESK, "locale": "en-US"} | options))  # type: ignore[arg-type]
    context.set_default_timeout(20_000)
    view = View(await context.new_page(), url)
    view.watch()
    try:
        yield view
    except BaseException:
        with suppress(Error):  # the browser may be the one that failed
            await view.page.screenshot(path=picture_of_this_test())
        raise
    finally:
        await context.close()
    assert view.faults == [], view.faults  # pytest shows no values for a module that it does not rewrite


def picture_of_this_test() -> Path:
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" ")[0]
    return FAILURES / f"{re.sub(r'[^a-z0-9_]+', '-', test.lower())}.png"


def fill(url: str) -> None:
    """A small shop at night: what a person would see of a queue in use."""
    chance = random.Random(7)
    with Client(url) as client:
        orders = [
            new_job(
                {"order": 1000 + n, "customer": chance.choice(("ann", "bob", "carol")), "total": n % 90 + 9.5},
                id=f"order-{1000 + n}",
                delay=60 + chance.random() * 86_000,
                tags=["order"],
            )
            for n in range(900)
        ]
        client.send_many("order-timeouts", orders)
        mails = [new_job({"to": f"user{n}@example.com"}, id=f"mail-{n}", delay=300 + n * 17) for n in range(120)]
        client.send_many("emails", mails)
        client.send_many("digests", [new_job({"n": n}, id=f"digest-{n}", delay=7200) for n in range(40)])
        client.pause("digests")
        client.send_many("thumbnails", [new_job({"image": n}, id=f"image-{n}") for n in range(37)])
        client.send_many("invoices", [new_job({"invoice": n}, id=f"invoice-{n}", max_attempts=3) for n in range(14)])
        for job in client.pull("invoices", max=12):
            number = int(job.id.rpartition("-")[2])
            reason = "the payment provider answered 503" if number % 3 else f"customer {number} has no address"
            client.release(job, error=reason, discard=True)
        client.pull("thumbnails", max=4, lease="30m")
        client.send("an-unusually-long-name-of-a-topic-" + "x" * 90, {"long": True}, id="y" * 120, delay="3h")
        client.send(
            "order-timeouts",
            {
                "order": 12345678901234567890,
                "customer": {"name": "Ann Lee", "vip": True},
                "items": [{"sku": "A-7", "n": 2}],
            },
            id="order-4711",
            delay="45m",
            tags=["order", "vip"],
            headers={"source": "web shop"},
            retry={"ladder": ["2m", "10m", "1h"]},
        )


def report(url: str, name: str, **fields: object) -> None:
    """What a worker says about itself every 10 s."""
    said = {"host": "host-1", "pid": 7, "version": "0.1.0", "topics": ["emails"], "concurrency": 4, "started_at_ms": 1}
    body = json.dumps({**said, **fields}).encode()
    address = f"{url}/v1/workers/{quote(name, safe='')}"
    urlopen(Request(address, body, {"Content-Type": "application/json"}, method="PUT")).close()


def add(url: str, topic: str, id: str, body: str) -> None:
    """Send a job with any topic and id. The native API takes only plain names; this protocol takes all."""
    job = {"command": "add", "topic": topic, "id": id, "delay": 3600, "body": body}
    request = Request(f"{url}/delay-queue", json.dumps(job).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        assert json.load(answer)["success"], answer
