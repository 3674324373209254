"""Every test of this folder runs on every store. One that cannot be imported or started fails: nothing is skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.kit.async_tests import async_fixture
from tests.kit.fixtures import (
    make_kit,
    private_cluster,
    private_redis,
    private_sentinels,
    private_valkey,
    replicated_cluster,
)
from tests.kit.store import KINDS, SLOW_KINDS, StoreKit

__all__ = ["private_cluster", "private_redis", "private_sentinels", "private_valkey", "replicated_cluster"]


@async_fixture(params=[*KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW_KINDS)])
async def kit(request: pytest.FixtureRequest) -> AsyncIterator[StoreKit]:
    async with make_kit(request.param, request) as kit:
        yield kit
