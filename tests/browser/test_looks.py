"""How every page looks: nothing is cut off on a phone, everyone can read it, and pictures of it for the docs.

DUELINE_IMAGES=docs/images make test-browser       # replaces the pictures of the docs
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from dueline import Client

from ..integration.served import served
from ..kit.hook import Hook, ReceivedCall
from .conftest import OpenView
from .kit import DESK, PHONE, View, fill

AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = {
    "overview": "",
    "topics": "topics",
    "topic": "topics/order-timeouts",
    "forecast": "topics/order-timeouts/forecast?range=day",
    "job": "topics/order-timeouts/jobs/order-4711",
    "dead": "topics/invoices/dead",
    "policy": "topics/emails/policy",
    "push": "topics/webhooks/push",
    "dead-letters": "dead",
    "targets": "push",
    "store": "store",
    "access": "access",
    "audit": "access/audit",
    "long-name": "topics/an-unusually-long-name-of-a-topic-" + "x" * 90 + "/jobs/" + "y" * 120,
}


async def settled(view: View, place: str) -> None:
    await view.open(place)
    await expect(view.page.locator(".skel")).to_have_count(0)


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_fits_a_phone(name: str, open_view: OpenView) -> None:
    async with open_view(viewport=PHONE) as view:
        view.refusals = (404,)
        await settled(view, PAGES[name])
        wide = await view.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0


async def test_no_table_is_cut_off_on_a_desk(open_view: OpenView) -> None:
    hidden = "[...document.querySelectorAll('.wrap')].map(one => one.scrollWidth - one.clientWidth)"
    async with open_view() as view:
        view.refusals = (404,)
        for name, place in PAGES.items():
            await settled(view, place)
            assert set(await view.page.evaluate(hidden)) <= {0}, name


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make ui")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everyone_can_read_and_use_every_page(scheme: str, open_view: OpenView) -> None:
    found: dict[str, Any] = {}
    async with open_view(color_scheme=scheme, bypass_csp=True) as view:
        view.refusals = (404,)
        for name, place in PAGES.items():
            await settled(view, place)
            await view.page.evaluate(AXE.read_text())
            broken = await view.page.evaluate("axe.run().then(found => found.violations)")
            for rule in broken:
                found[f"{name}: {rule['id']}"] = [node["html"][:160] for node in rule["nodes"]][:3]
    assert found == {}


async def gone(_call: ReceivedCall) -> Any:
    from aiohttp import web

    return web.Response(status=503, text="the warehouse is closed")


async def test_pictures(open_view: OpenView, tmp_path: Path) -> None:
    folder = Path(os.environ.get("DUELINE_IMAGES", tmp_path))
    folder.mkdir(exist_ok=True)
    variables = {"DUELINE_PUSH__ALLOW": "127.0.0.1", "DUELINE_SERVER__UI_ENVIRONMENT": "production"}
    # A server of its own: the topics of other tests are not for show.
    with served(tmp_path / "data", **variables, DUELINE_SERVER__UI_COLOUR="red") as url:
        fill(url)
        await pictures(open_view, url, folder)
    assert len(list(folder.glob("*.png"))) >= 18


async def pictures(open_view: OpenView, url: str, folder: Path) -> None:
    async with Hook() as hook:
        with Client(url) as client:
            client.set_push("webhooks", url=hook.url, retry={"ladder": ["1m", "10m"]})
            for number in range(3):
                client.send("webhooks", {"n": number}, id=f"hook-{number}")
            await hook.arrived(3)
            hook.answer = gone
            client.send("webhooks", {"n": 3}, id="hook-3")
            await hook.arrived(4)
        for name in ("overview", "forecast", "job", "dead", "push", "topic", "topics"):
            for scheme in ("light", "dark"):
                async with open_view(url, color_scheme=scheme, viewport=DESK) as view:
                    await picture(view, name, folder / f"{name}-{scheme}.png")
        for name in ("overview", "topics", "job"):
            async with open_view(url, viewport=PHONE) as view:
                await picture(view, name, folder / f"{name}-phone.png")
        async with open_view(url, locale="zh-CN") as view:
            await picture(view, "overview", folder / "overview-chinese.png")


async def picture(view: View, name: str, path: Path) -> None:
    await settled(view, PAGES[name])
    await view.page.screenshot(path=path)
