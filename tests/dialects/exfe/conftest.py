from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..kit import Runner, serve
from .kit import Exfe, Services

ALLOW = {"DUELINE_PUSH__ALLOW": "127.0.0.0/8"}  # the services of the tests are on this machine
QUICK = {**ALLOW, "DUELINE_DIALECTS__EXFE__RETRY": "1s, 1s, 1s"}  # the ladder, for those who wait for it
OFF = {**ALLOW, "DUELINE_DIALECTS__EXFE__RETRY": "off"}


@pytest.fixture(scope="session")
def services(runner: Runner) -> Iterator[Services]:
    services = Services()
    runner.run(services.start())
    yield services
    runner.run(services.stop())


def _served(
    options: dict[str, str], runner: Runner, services: Services, factory: pytest.TempPathFactory
) -> Iterator[Exfe]:
    served = runner.run(serve(factory.mktemp("exfe"), options))
    yield Exfe(served, services)
    runner.run(served.stop())


@pytest.fixture(scope="session")
def exfe(runner: Runner, services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exfe]:
    """A server with a quick ladder; a test takes a connection of its own with `another()`."""
    yield from _served(QUICK, runner, services, tmp_path_factory)


@pytest.fixture(scope="session")
def exfe_once(runner: Runner, services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exfe]:
    """A server that tries once, as the original."""
    yield from _served(OFF, runner, services, tmp_path_factory)
