"""Session fixtures for the private stores, and kits on them; conftests import what they want."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .store import StoreKit, memory_kit, valkey_kit
from .valkey import PrivateCluster, PrivateValkey


@pytest.fixture(scope="session")
def private_valkey() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        yield server


@pytest.fixture(scope="session")
def private_cluster() -> Iterator[PrivateCluster]:
    cluster = PrivateCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def make_kit(kind: str, request: pytest.FixtureRequest, **options: Any) -> StoreKit:
    """A kit of this kind; starts the server it needs at the first use in the session."""
    if kind == "memory":
        return memory_kit()
    server = request.getfixturevalue("private_cluster" if kind == "cluster" else "private_valkey")
    return valkey_kit(kind, server.url, **options)
