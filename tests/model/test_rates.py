"""The rate limit in the model: both stores count alike to the bit, and no sleeper is forgotten when it changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from dueline.engine.store import Credit, OnConflict, Pull
from tests.kit.store import item
from tests.kit.valkey import PrivateValkey

from .machine import POLICIES, JobMachine, Life, machine_settings
from .mutants import Mutant
from .sleepers import Sleepers
from .twins import IDS, SharedStore, Twins

pytestmark = pytest.mark.slow


class RateMachine(RuleBasedStateMachine):
    """Rules for a partition that may have a rate; beside those of a programme."""

    shared: SharedStore
    twins: Twins

    @rule(rate_per_s=st.sampled_from([0.0, 0.0, 15.0, 70.0, 333.3]))
    def rate(self, rate_per_s: float) -> None:
        self.twins.control(rate_per_s=rate_per_s)

    @rule(
        rest_ms=st.sampled_from([0, 70, 1000]),
        later_ms=st.sampled_from([0, 20, 40]),
        then_per_s=st.sampled_from([5.0, 20.0]),
    )
    def a_crowd_under_a_rate(self, rest_ms: int, later_ms: int, then_per_s: float) -> None:
        """Chance alone rarely brings more jobs than tokens, and a bucket that is neither full nor empty."""
        self.twins.control(pause_until_ms=0, max_in_flight=0, rate_per_s=0.0)
        self.twins.control(rate_per_s=15.0)
        self.shared.clock.advance(rest_ms)
        self.twins.send([item(id, policy=POLICIES[0], on_live=OnConflict.REPLACE) for id in IDS])
        self.twins.pull(Pull((Credit(2, 60), Credit(1, 60)), 15))
        self.shared.clock.advance(later_ms)
        self.twins.control(rate_per_s=then_per_s)
        self.twins.pull(Pull((Credit(3, 60),), 15))


class RatedLife(RateMachine, Life):
    pass


class RatedSleepers(RateMachine, Sleepers):
    pass


MACHINES: dict[str, type[JobMachine]] = {"life": RatedLife, "sleepers": RatedSleepers}
MUTANTS = (
    Mutant("a higher rate wakes nobody", "sleepers", "control", "(rate and N[5] > rate)", "false"),
    Mutant("the end of a rate wakes nobody", "sleepers", "control", "(N[5] == 0 or", "(false or"),
    Mutant("a bucket without a bottom", "life", "pull", "math.min(places, whole(tokens))", "places"),
    Mutant("a bucket without a top", "life", "lib/rate", "return 1 + per_second / 10", "return 1e9"),
    Mutant("a pull costs one token", "life", "pull", "tokens = tokens - jobs", "tokens = tokens - math.min(jobs, 1)"),
    Mutant("a changed rate is a new one", "life", "lib/rate", "math.min(refilled(), most(per_second))", "1"),
)


@contextmanager
def machine(name: str, url: str, mutant: Mutant | None = None) -> Iterator[type[JobMachine]]:
    shared = SharedStore(url, mutant.patch if mutant else None, sleepers=2 if name == "sleepers" else 0)
    shared.start()
    try:
        yield type(f"Started{name.title()}", (MACHINES[name],), {"shared": shared})
    finally:
        shared.stop()


@pytest.mark.parametrize("name", MACHINES)
def test_both_stores_keep_every_rate_alike(private_valkey: PrivateValkey, name: str) -> None:
    with machine(name, private_valkey.url) as started:
        run_state_machine_as_test(started, settings=machine_settings())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_of_the_rate_is_found(private_valkey: PrivateValkey, mutant: Mutant) -> None:
    with machine(mutant.machine, private_valkey.url, mutant) as started, pytest.raises(AssertionError):  # noqa: PT012
        run_state_machine_as_test(started, settings=machine_settings(300, shrink=False))
        pytest.fail(f"the model did not notice: {mutant.name}")
