from __future__ import annotations

from collections.abc import AsyncIterator

from engine_kit import EngineKit, running

from tests.kit.async_tests import async_fixture


@async_fixture
async def kit() -> AsyncIterator[EngineKit]:
    """An engine with default options; a test that needs others opens `running(...)`."""
    async with running() as kit:
        yield kit
