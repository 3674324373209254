from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from .kit import Api


@pytest.fixture
def api(loop_runner: asyncio.Runner) -> Iterator[Api]:
    """Blocking calls (`api.post`) for plain tests, `await api.ask` for async ones: both in the loop of the test."""
    api = Api(runner=loop_runner)
    yield api
    api.close()
