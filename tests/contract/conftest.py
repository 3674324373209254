"""Every test of this folder runs on every store. One that cannot be imported or started fails: nothing is skipped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.bed import KINDS, Bed
from tests.kit.fixtures import make_bed, private_cluster, private_valkey, run_coroutine_test

__all__ = ["private_cluster", "private_valkey"]


@pytest.fixture(params=KINDS)
def bed(request: pytest.FixtureRequest) -> Bed:
    return make_bed(request.param, request)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    return True if run_coroutine_test(pyfuncitem.obj, arguments) else None
