"""Every test with a front kit runs on a fresh front, four times: its handlers answer in a task, without one, on the
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
def open_kit(request: pytest.FixtureRequest) -> kit.OpenKit:
    """Opens a front kit with options: `async with open_kit(FrontLimits(...)) as front_kit`."""
    if request.param == "under TLS":
        return partial(kit.front_kit, tls=kit.private_tls())
    return partial(kit.front_kit, taskless=request.param == "without a task", on_line=request.param == "on the line")


@async_fixture
async def front_kit(open_kit: kit.OpenKit) -> AsyncIterator[kit.FrontKit]:
    async with open_kit() as front_kit:
        yield front_kit
