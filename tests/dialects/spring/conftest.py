from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.eureka import Registry

from ..kit import Runner, serve
from .kit import Spring

ALLOW = {"DUELINE_PUSH__ALLOW": "127.0.0.0/8"}  # the applications of the tests are on this machine


def options(registry: Registry) -> dict[str, str]:
    return {**ALLOW, "DUELINE_DISCOVERY__EUREKA__URL": registry.url}


@pytest.fixture(scope="session")
def spring(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spring]:
    """A server with a registry; a test takes a connection of its own with `another()`."""
    registry = runner.run(_registry())
    served = runner.run(serve(tmp_path_factory.mktemp("spring"), options(registry)))
    yield Spring(served, registry)
    runner.run(served.stop())
    runner.run(registry.stop())


async def _registry() -> Registry:
    registry = Registry()
    await registry.start()
    return registry
