"""Session fixtures for the private stores, and kits on them; conftests import what they want."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .store import StoreKit, memory_kit, valkey_kit
from .valkey import SYSTEM_REDIS, PrivateCluster, PrivateSentinels, PrivateValkey, running_stores

SERVERS = {
    "cluster": "private_cluster",
    "cluster with replicas": "replicated_cluster",
    "sentinel": "private_sentinels",
    "redis": "private_redis",
}


@pytest.fixture(scope="session")
def private_valkey() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        yield server


@pytest.fixture(scope="session")
def private_redis() -> Iterator[PrivateValkey]:
    """The oldest server that is supported: Debian's Redis 7.0."""
    if SYSTEM_REDIS is None:
        pytest.skip("there is no redis-server here (Debian: apt-get install redis-tools)")
    with PrivateValkey(binary=SYSTEM_REDIS) as server:
        yield server


@pytest.fixture(scope="session")
def private_cluster() -> Iterator[PrivateCluster]:
    """Three primaries without replicas."""
    with running_stores(PrivateCluster()) as cluster:
        yield cluster


@pytest.fixture
def partial_cluster() -> Iterator[PrivateCluster]:
    """A Cluster of its own, on disk, that serves what is left of it when a node is down."""
    disk = ("--appendonly", "yes", "--appendfsync", "always")
    with running_stores(
        PrivateCluster(node_timeout_ms=1000, options=("--cluster-require-full-coverage", "no", *disk))
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def replicated_cluster() -> Iterator[PrivateCluster]:
    """Three primaries with a replica each. A test that hurts a node waits until the Cluster is whole again."""
    with running_stores(PrivateCluster(replicas=1, node_timeout_ms=1500)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def private_sentinels() -> Iterator[PrivateSentinels]:
    """A primary, two replicas and three sentinels, all with passwords."""
    with running_stores(PrivateSentinels(password="nodes", sentinel_password="theirs")) as sentinels:
        yield sentinels


def make_kit(kind: str, request: pytest.FixtureRequest, **options: Any) -> StoreKit:
    """A kit of this kind; starts the server it needs at the first use in the session."""
    if kind == "memory":
        return memory_kit()
    server = request.getfixturevalue(SERVERS.get(kind, "private_valkey"))
    return valkey_kit(kind, server.url, **options)
