from __future__ import annotations

from collections.abc import AsyncIterator

from tests.kit.async_tests import async_fixture

from .push_kit import PushKit, running


@async_fixture
async def kit() -> AsyncIterator[PushKit]:
    """One process with default options; a test that needs others opens `running(...)`."""
    async with running() as kit:
        yield kit
