"""Service discovery: where a service runs now.

    courier --service name--> Resolver --instances in the order to try them--> courier

`static` answers from a table in the configuration, `eureka` from a registry. Service names are case-insensitive. A
resolver's answer is not trusted: calls to an instance pass the egress rule like every other call.

Rule for the next editor: a resolver never raises into a courier. It returns an empty sequence when a service has no
instance, and also when the registry is down and nothing is cached. The courier then releases the job without counting
an attempt, and asks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

SETTINGS = "discovery.eureka.url or discovery.static"  # the settings that make a service known
TASK_KEY = "delay-queue:task"  # the metadata entry in which an application lists its task types


class Instance(msgspec.Struct, frozen=True):
    """One running copy of a service.

    `url` has no path and no trailing slash, unless the configuration gave it a path. `tasks` lists the task types that
    the instance handles, or is None if it does not declare any. `service` is in lower case. `metadata` is what the
    instance registered, unchanged.
    """

    url: str
    tasks: tuple[str, ...] | None = None
    service: str = ""
    id: str = ""
    metadata: Mapping[str, str] = {}


class Resolver(Protocol):
    """Answers from its cache when it can, else looks the service up."""

    async def instances(self, service: str, fresh: bool = False) -> Sequence[Instance]:
        """The instances that are up, in the order to try them. With `fresh`, a cached answer older than a second is
        looked up again, because a job is waiting for an instance to appear."""
        ...

    async def services(self) -> Mapping[str, Sequence[Instance]]:
        """All known services, by their lower-case names."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...
