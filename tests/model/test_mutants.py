"""Positive controls of the model: each broken rule of a script is found. In a file of its own, because files are what
the tests' processes share."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.kit.valkey import PrivateValkey

from .kit import machine
from .machine import machine_settings
from .mutants import MUTANTS, Mutant

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_found(private_valkey: PrivateValkey, mutant: Mutant) -> None:
    with machine(mutant.machine, private_valkey.url, mutant) as started, pytest.raises(AssertionError):  # noqa: PT012
        run_state_machine_as_test(started, settings=machine_settings(1000, shrink=False))
        pytest.fail(f"the model did not notice: {mutant.name}")
