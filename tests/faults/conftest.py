from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..kit.fixtures import private_valkey as private_valkey
from .kit import build_shim, short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shim(tmp_path_factory.mktemp("shim"))
