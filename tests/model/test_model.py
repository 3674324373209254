"""The reference and the real store answer every random programme alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.kit.valkey import PrivateValkey

from .machine import Life, machine_settings
from .twins import Bench


@pytest.fixture
def bench(private_valkey: PrivateValkey) -> Iterator[Bench]:
    bench = Bench(private_valkey.url)
    bench.start()
    yield bench
    bench.stop()


def test_both_stores_live_every_programme_alike(bench: Bench) -> None:
    run_state_machine_as_test(type("LifeOfBoth", (Life,), {"bench": bench}), settings=machine_settings())
