"""Every test of this folder runs on every store. One that cannot be imported or started fails: nothing is skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.kit.async_tests import async_fixture
from tests.kit.bed import KINDS, Bed
from tests.kit.fixtures import make_bed, private_cluster, private_valkey

__all__ = ["private_cluster", "private_valkey"]


@async_fixture(params=KINDS)
async def bed(request: pytest.FixtureRequest) -> AsyncIterator[Bed]:
    async with make_bed(request.param, request) as bed:
        yield bed
