"""The reference and the real store answer every random programme alike, and mutants of the scripts are found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.kit.valkey import PrivateValkey

from .machine import Ground, Life, machine_settings
from .merging import Groups, GroupSleepers, OnlyGroups
from .mutants import MUTANTS, Mutant
from .sleepers import Sleepers
from .twins import Bench

MACHINES: dict[str, type[Ground]] = {
    "life": Life,
    "sleepers": Sleepers,
    "groups": Groups,
    "group sleepers": GroupSleepers,
    "wide groups": Groups,
    "only groups": OnlyGroups,
}


@contextmanager
def machine(name: str, url: str, mutant: Mutant | None = None) -> Iterator[type[Ground]]:
    """The machine on a started bench, whose scripts carry the mutant."""
    patch, sleepers = mutant.patch if mutant else None, 2 if issubclass(MACHINES[name], Sleepers) else 0
    bench = Bench(url, patch, sleepers=sleepers, wide=name.startswith("wide"))
    bench.start()
    try:
        yield type(f"Started{name.title().replace(' ', '')}", (MACHINES[name],), {"bench": bench})
    finally:
        bench.stop()


@pytest.mark.parametrize("name", MACHINES)
def test_both_stores_live_every_programme_alike(private_valkey: PrivateValkey, name: str) -> None:
    with machine(name, private_valkey.url) as started:
        run_state_machine_as_test(started, settings=machine_settings())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_found(private_valkey: PrivateValkey, mutant: Mutant) -> None:
    with machine(mutant.machine, private_valkey.url, mutant) as started, pytest.raises(AssertionError):  # noqa: PT012
        run_state_machine_as_test(started, settings=machine_settings(300, shrink=False))
        pytest.fail(f"the model did not notice: {mutant.name}")
