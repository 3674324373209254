"""Services from a table in the configuration, for deployments without a registry. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from . import TASK_KEY, Instance


class StaticResolver:
    """Service name -> its instances, in the order to try them."""

    def __init__(self, table: Mapping[str, Sequence[Instance]]) -> None:
        self._table = {
            name.lower(): tuple(replace(one, service=name.lower(), id=one.id or one.url) for one in instances)
            for name, instances in table.items()
        }

    def knows(self, service: str) -> bool:
        return service.lower() in self._table

    async def instances(self, service: str, fresh: bool = False) -> Sequence[Instance]:
        return self._table.get(service.lower(), ())

    async def services(self) -> Mapping[str, Sequence[Instance]]:
        return self._table

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def instance_at(url: str, tasks: str | None = None) -> Instance:
    """An entry of the table as an instance. A trailing slash is removed from its address. `tasks` holds types separated
    by commas; spaces around a type are ignored."""
    if tasks is None:
        return Instance(url.rstrip("/"))
    types = tuple(dict.fromkeys(filter(None, (part.strip() for part in tasks.split(",")))))
    return Instance(url.rstrip("/"), types, metadata={TASK_KEY: tasks})
