"""Run `async def` tests: each one in an event loop of its own, together with its async fixtures.

    @async_fixture
    async def store() -> AsyncIterator[Store]:
        async with Store() as store:
            yield store

    async def test_a_store_is_empty(store: Store) -> None:
        assert await store.count() == 0

A folder or a module that needs another loop overrides a fixture: `loop_factory` to choose the kind of loop,
`loop_runner` to share one loop between tests (`loop_runner = one_loop` in a module whose tests share servers). When the
runner is closed, it cancels the tasks that a test left behind.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture
def loop_factory() -> LoopFactory | None:
    """Makes the loop of a test. None: asyncio's own."""
    return None


@pytest.fixture
def loop_runner(loop_factory: LoopFactory | None) -> Iterator[asyncio.Runner]:
    """Runs the test and its async fixtures."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        yield runner


@pytest.fixture(scope="module")
def one_loop() -> Iterator[asyncio.Runner]:
    """One loop for all tests of a module."""
    with asyncio.Runner() as runner:
        yield runner


def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    if collector.istestfunction(obj, name) and inspect.iscoroutinefunction(obj):
        pytest.mark.usefixtures("loop_runner")(obj)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    pyfuncitem.funcargs["loop_runner"].run(pyfuncitem.obj(**arguments))
    return True


def async_fixture(function: Callable[..., AsyncIterator[Any]] | None = None, **options: Any) -> Any:
    """Make a fixture of an async generator; it runs in the loop of the test. `options`: those of `pytest.fixture`."""
    if function is None:
        return lambda function: async_fixture(function, **options)
    manager = asynccontextmanager(function)

    def fixture(loop_runner: asyncio.Runner, **arguments: Any) -> Iterator[Any]:
        opened = manager(**arguments)
        value = loop_runner.run(opened.__aenter__())
        yield value
        loop_runner.run(opened.__aexit__(None, None, None))

    wanted = inspect.signature(function).parameters.values()
    runner = inspect.Parameter("loop_runner", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    fixture.__signature__ = inspect.Signature([runner, *wanted])  # type: ignore[attr-defined]
    fixture.__name__, fixture.__doc__ = function.__name__, function.__doc__
    return pytest.fixture(fixture, **options)
