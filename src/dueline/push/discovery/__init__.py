"""Where a service runs now: the one question that couriers ask, and what answers it.

    courier --service name--> Resolver --instances in the order to try them--> courier

`static` answers from a table in the configuration, `eureka` from a registry. Names are the same in any case. What a
resolver tells is a claim of others: the calls to an instance pass the egress rule like every other call.

Rule for the next editor: nobody there is an answer (the empty tuple), and so is a registry that does not answer when
nothing is remembered of it. A courier then gives the job back uncounted and asks again; nothing here raises into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

SETTINGS = "discovery.eureka.url or discovery.static"  # where a service is made known
TASK_KEY = "delay-queue:task"  # the metadata entry in which an application of the Spring queue names its task types


class Instance(msgspec.Struct, frozen=True):
    """One running copy of a service.

    `url` has neither a path nor a slash at its end, unless the configuration gave it one. `tasks`: the task types it
    says it works on; None: it says nothing about that. `service` is in lower case. `metadata`: what it tells about
    itself, as it was told.
    """

    url: str
    tasks: tuple[str, ...] | None = None
    service: str = ""
    id: str = ""
    metadata: Mapping[str, str] = {}


class Resolver(Protocol):
    """Answers from memory when it can; an answer that is needed and not remembered is looked up."""

    async def instances(self, service: str, fresh: bool = False) -> Sequence[Instance]:
        """The instances that are up, in the order to try them. `fresh`: somebody waits for one to appear, so what is
        remembered for more than a second is looked up again."""
        ...

    async def services(self) -> Mapping[str, Sequence[Instance]]:
        """All services that are known, by their names in lower case."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...
