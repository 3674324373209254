"""The hook that runs `async def` tests, tried on tests of its own: no such test can pass without being awaited."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import asyncio
import pytest
from tests.kit.async_tests import async_fixture

seen = []

@async_fixture
async def loop():
    seen.append("opened")
    yield asyncio.get_running_loop()
    assert asyncio.get_running_loop().is_running()
    seen.append("closed")

@async_fixture(params=[1, 2])
async def number(request, loop):
    yield request.param

async def test_that_passes():
    await asyncio.sleep(0)

async def test_that_fails():
    await asyncio.sleep(0)
    assert False, "awaited"

class TestClass:
    async def test_that_fails_in_a_class(self):
        assert False

async def test_that_runs_in_the_loop_of_its_fixtures(number, loop):
    assert asyncio.get_running_loop() is loop

async def test_that_fails_has_its_fixtures_closed(loop):
    seen.clear()
    assert False

def test_that_comes_next():
    assert seen == ["closed"]

async def test_that_leaves_a_task_behind():
    async def forgotten():
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    task = asyncio.create_task(forgotten())
    await asyncio.sleep(0)

def test_that_finds_it_cancelled():
    assert seen == ["closed", "cancelled"]
"""


def test_async_tests_run_in_the_loop_of_their_fixtures_and_fail_when_they_should(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    result = pytester.runpytest("-p", "tests.kit.async_tests", "-p", "no:cacheprovider")
    failed = sorted(line.split("::")[-1].split(" ")[0] for line in result.outlines if line.startswith("FAILED"))
    assert failed == ["test_that_fails", "test_that_fails_has_its_fixtures_closed", "test_that_fails_in_a_class"]
    result.assert_outcomes(passed=6, failed=3)


def test_without_the_hook_an_async_test_fails(pytester: pytest.Pytester) -> None:
    """If the hook were lost, the suite would fail: pytest itself refuses an async test that nothing awaits."""
    pytester.makepyfile("async def test_that_nobody_awaits(): ...")
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(failed=1)
