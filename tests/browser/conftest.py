"""One browser, one loop and one server with jobs for all tests of this folder. Without Chromium they are skipped."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from ..integration.serve_kit import served
from ..kit.async_tests import async_fixture

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from .kit import View

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class OpenView(Protocol):
    def __call__(self, url: str | None = None, **options: Any) -> AbstractAsyncContextManager[View]: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="there is no chromium on the PATH"))


@pytest.fixture(scope="session")
def loop_runner() -> Iterator[asyncio.Runner]:
    """One loop for all tests: the browser belongs to it."""
    with asyncio.Runner() as runner:
        yield runner


@async_fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    from .kit import QUIET

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that checks no tokens, with the jobs of `kit.fill`. Tests that change jobs use topics of their own."""
    from .kit import fill

    data = tmp_path_factory.mktemp("browser") / "data"
    with served(data, DUELINE_PUSH__ALLOW="127.0.0.1", DUELINE_SERVER__UI_ENVIRONMENT="staging") as url:
        fill(url)
        yield url


@pytest.fixture(scope="session")
def open_view(browser: Browser, request: pytest.FixtureRequest) -> OpenView:
    """Opens a tab at a server, by default at `shop`."""
    from .kit import opened

    return lambda url=None, **options: opened(browser, url or request.getfixturevalue("shop"), **options)
