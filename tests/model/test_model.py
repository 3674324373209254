"""The reference and the real store answer every random programme alike. The quick run tries the first of the programmes
that the deep run (`make test-slow`) tries."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.kit.valkey import PrivateValkey

from .kit import MACHINES, machine
from .machine import EXAMPLES, machine_settings


@pytest.mark.parametrize("examples", [20, pytest.param(EXAMPLES, marks=pytest.mark.slow)], ids=["quick", "deep"])
@pytest.mark.parametrize("name", MACHINES)
def test_both_stores_live_every_programme_alike(private_valkey: PrivateValkey, name: str, examples: int) -> None:
    with machine(name, private_valkey.url) as started:
        run_state_machine_as_test(started, settings=machine_settings(examples))
