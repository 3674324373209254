"""Every test has a prefix of its own on one private Valkey."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.kit.fixtures import private_valkey
from tests.kit.valkey import PrivateValkey

from .lab import Lab

__all__ = ["private_valkey"]

_numbers = itertools.count()


@pytest.fixture
def lab(private_valkey: PrivateValkey) -> Iterator[Lab]:
    lab = Lab(private_valkey.url, f"p{next(_numbers)}")
    yield lab
    lab.close()
