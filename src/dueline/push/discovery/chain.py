"""The static table first, then the registry: the operator's configuration takes precedence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import Instance, Resolver
from .static import StaticResolver


class ResolverChain:
    """A service that is in the table is never looked up in the registry."""

    def __init__(self, table: StaticResolver, registry: Resolver) -> None:
        self._table = table
        self._registry = registry

    async def instances(self, service: str, fresh: bool = False) -> Sequence[Instance]:
        where = self._table if self._table.knows(service) else self._registry
        return await where.instances(service, fresh)

    async def services(self) -> Mapping[str, Sequence[Instance]]:
        return {**await self._registry.services(), **await self._table.services()}

    async def start(self) -> None:
        await self._registry.start()

    async def stop(self) -> None:
        await self._registry.stop()
