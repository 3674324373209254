"""A machine on a started store: what the tests of the model and of its mutants share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .machine import BaseMachine, Life
from .merging import Groups, GroupSleepers, OnlyGroups
from .mutants import Mutant
from .scheduling import Scheduling
from .sleepers import Sleepers
from .twins import SharedStore

MACHINES: dict[str, type[BaseMachine]] = {
    "life": Life,
    "sleepers": Sleepers,
    "groups": Groups,
    "group sleepers": GroupSleepers,
    "namespace_ids groups": Groups,
    "only groups": OnlyGroups,
    "schedules": Scheduling,
}


@contextmanager
def machine(name: str, url: str, mutant: Mutant | None = None) -> Iterator[type[BaseMachine]]:
    """The machine on a started store, whose scripts carry the mutant."""
    patch, sleepers = mutant.patch if mutant else None, 2 if issubclass(MACHINES[name], Sleepers) else 0
    shared = SharedStore(url, patch, sleepers=sleepers, namespace_ids=name.startswith("namespace_ids"))
    shared.start()
    try:
        yield type(f"Started{name.title().replace(' ', '')}", (MACHINES[name],), {"shared": shared})
    finally:
        shared.stop()
