"""Session fixtures for the private stores, and a runner for `async def` tests; conftests import what they want."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from .bed import Bed, memory_bed, valkey_bed
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


def make_bed(kind: str, request: pytest.FixtureRequest, **options: Any) -> Bed:
    """A bed of this kind; starts the server it needs at the first use in the session."""
    if kind == "memory":
        return memory_bed()
    server = request.getfixturevalue("private_cluster" if kind == "cluster" else "private_valkey")
    return valkey_bed(kind, server.url, **options)


def run_coroutine_test(function: Any, arguments: dict[str, Any]) -> bool:
    """Run an `async def` test in a loop of its own, with its beds open around it. False: it is an ordinary test."""
    if not inspect.iscoroutinefunction(function):
        return False

    async def run() -> None:
        beds = [value for value in arguments.values() if isinstance(value, Bed)]
        for bed in beds:
            await bed.__aenter__()
        try:
            await function(**arguments)
        finally:
            for bed in beds:
                await bed.__aexit__(None, None, None)

    asyncio.run(run())
    return True
