from __future__ import annotations

from collections.abc import AsyncIterator

from engine_kit import World, running

from tests.kit.async_tests import async_fixture


@async_fixture
async def world() -> AsyncIterator[World]:
    """An engine with default options; a test that needs others opens `running(...)`."""
    async with running() as world:
        yield world
