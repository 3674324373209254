from __future__ import annotations

from collections.abc import Iterator

import pytest

from .kit import Api


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.close()
