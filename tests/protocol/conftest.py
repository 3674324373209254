"""Every test of a site runs on a fresh front, four times: its handlers answer in a task, without one, on the
line, under TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
import uvloop

from tests.kit.async_tests import LoopFactory, async_fixture

from . import kit


@pytest.fixture
def loop_factory() -> LoopFactory:
    """The loop that `dueline serve` uses."""
    return uvloop.new_event_loop


@pytest.fixture(
    params=["in a task", "without a task", "on the line", pytest.param("under TLS", marks=pytest.mark.slow)]
)
def open_site(request: pytest.FixtureRequest) -> kit.OpenSite:
    """Opens a site with options: `async with open_site(FrontLimits(...)) as site`."""
    if request.param == "under TLS":
        return partial(kit.site, tls=kit.private_tls())
    return partial(kit.site, taskless=request.param == "without a task", on_line=request.param == "on the line")


@async_fixture
async def site(open_site: kit.OpenSite) -> AsyncIterator[kit.Site]:
    async with open_site() as site:
        yield site
