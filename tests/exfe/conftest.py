"""Every test has a prefix of its own on one private Valkey."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.kit.fixtures import private_valkey
from tests.kit.valkey import PrivateValkey

from .kit import ExfeKit

__all__ = ["private_valkey"]

_numbers = itertools.count()


@pytest.fixture
def kit(private_valkey: PrivateValkey) -> Iterator[ExfeKit]:
    kit = ExfeKit(private_valkey.url, f"p{next(_numbers)}")
    yield kit
    kit.close()
