"""Tests of one file that take only their dialect's server run side by side: the first that is called starts all of
them. Only of its file, because other files may belong to another process of the test run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from .kit import Runner

HERE = Path(__file__).parent
_items = pytest.StashKey[list[pytest.Function]]()
_started = pytest.StashKey[dict[str, "Future[None]"]]()
_runner = pytest.StashKey[Runner]()


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_items] = [
        item
        for item in session.items
        if isinstance(item, pytest.Function)
        and inspect.iscoroutinefunction(item.obj)
        and HERE in item.path.parents
        and _takes_only_the_server(item)
        and not item.get_closest_marker("skip")
    ]
    session.config.stash[_started] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    config = pyfuncitem.config
    if pyfuncitem not in config.stash[_items]:
        return None
    started = config.stash[_started]
    if pyfuncitem.nodeid not in started:
        names = _arguments(pyfuncitem)
        values = {name: pyfuncitem.funcargs[name] for name in names}
        for item in config.stash[_items]:
            if item.path == pyfuncitem.path and _arguments(item) == names:
                started[item.nodeid] = config.stash[_runner].submit(item.obj(**values))
    started[pyfuncitem.nodeid].result()
    return True


@pytest.fixture(scope="session")
def loop_runner(runner: Runner) -> Runner:
    """All async tests of this folder run on the loop of their servers."""
    return runner


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """The loop on which servers and coroutine tests of this session run."""
    runner = request.config.stash[_runner] = Runner()
    yield runner
    runner.close()


def _takes_only_the_server(item: pytest.Function) -> bool:
    """The fixture of a server has the name of its dialect's folder: `exfe`, `exfe_once`."""
    names = _arguments(item)
    return len(names) == 1 and names[0].startswith(item.path.parent.name)


def _arguments(item: pytest.Function) -> tuple[str, ...]:
    return tuple(inspect.signature(item.obj).parameters)
