"""Asks all primaries of a store what they are.

They are asked over connections of their own, so that a busy pipeline does not look like a dead store.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import BusyLoadingError, RedisError

from ..engine.errors import Loading, StoreDown, Unavailable
from ..store.valkey.calls import WrongStore
from ..store.valkey.link import Link, LinkLost, NotNow, WrongKind
from ..store.valkey.tls import StoreTls
from ..store_address import Endpoint, Kind
from .facts import AbsentNode, NodeFacts, StoreFacts, facts_of

REPLY_TIMEOUT_S = 2.0


class Probe:
    """Queries one store. It reconnects by itself. Every query may raise StoreDown (also Untrusted), Loading or
    WrongStore."""

    def __init__(self, url: str, tls: StoreTls = StoreTls()) -> None:
        self._link = Link(url, REPLY_TIMEOUT_S, tls=tls, primaries_only=False)
        self._usable: tuple[Endpoint, ...] = ()  # the primaries that `facts` found

    async def facts(self) -> StoreFacts:
        """One INFO per primary. Raises if none of them can be used."""
        endpoints = await self._primaries()
        found = await asyncio.gather(*map(self._node, endpoints), return_exceptions=True)
        nodes: list[NodeFacts] = []
        absent: list[AbsentNode] = []
        errors: list[Unavailable] = []
        for endpoint, one in zip(endpoints, found, strict=True):
            if isinstance(one, NodeFacts):
                nodes.append(one)
            elif isinstance(one, Unavailable):
                errors.append(one)
                absent.append(AbsentNode(str(endpoint), one.code, one.message))
            else:
                raise one
        self._usable = tuple(one for one, fact in zip(endpoints, found, strict=True) if isinstance(fact, NodeFacts))
        if not nodes:
            raise errors[0] if errors else StoreDown("no node of the Cluster has slots")
        return StoreFacts(self._link.address, tuple(nodes), tuple(absent))

    async def appendfsync(self) -> str | None:
        """The appendfsync setting of the primaries that `facts` found; None when one does not reveal it."""
        found: list[str] = []
        for endpoint in self._usable:
            try:
                answer = await self._call(endpoint, "CONFIG", "GET", "appendfsync")
            except Refused:
                return None
            if len(answer) != 2:
                return None
            found.append(_text(answer[1]))
        return "/".join(dict.fromkeys(found))

    async def runs_scripts(self) -> bool:
        """Whether the primaries that `facts` found let this user run scripts."""
        try:
            for endpoint in self._usable:
                await self._call(endpoint, "EVAL", "return 1", "0")
        except Refused:
            return False
        return True

    async def stop(self) -> None:
        """Disconnect. The next query connects again."""
        await self._link.stop()

    async def _primaries(self) -> tuple[Endpoint, ...]:
        await self._link.start()
        try:
            return await self._link.primaries()
        except WrongKind as error:
            raise WrongStore(str(error)) from None
        except LinkLost as error:
            raise (Untrusted(str(error)) if error.untrusted else _down(error)) from None

    async def _node(self, endpoint: Endpoint) -> NodeFacts:
        """What a primary reports. One that may not be used only for now raises StoreDown or Loading."""
        sections = ("server", "memory", "persistence", "replication", "errorstats", "cluster")
        try:
            fields = _fields(await self._call(endpoint, "INFO", *sections))
            if fields.get("loading", "0") != "0":
                raise _loading(f"{float(fields.get('loading_loaded_perc', '0') or 0):.0f} %")
            if self._link.address.kind is Kind.CLUSTER:
                fields |= _fields(await self._call(endpoint, "CLUSTER", "INFO"))
        except Refused as error:
            raise _down(error) from None
        facts = facts_of(str(endpoint), fields)
        if self._link.fails_over and facts.role != "master":
            raise _down(f"{endpoint} is a {facts.role}; another node will become the primary")
        if facts.cluster_ok is False and self._link.address.kind is Kind.CLUSTER:
            raise _down("the Cluster does not serve its slots (cluster_state:fail)")
        return facts

    async def _call(self, endpoint: Endpoint, *args: str) -> Any:
        try:
            return await self._link.call_node(endpoint, *args)
        except (LinkLost, NotNow) as error:
            if isinstance(error, LinkLost) and error.untrusted:
                raise Untrusted(str(error)) from None
            raise (_loading(error) if error.loading else _down(error)) from None
        except BusyLoadingError as error:
            raise _loading(error) from None
        except RedisError as error:
            raise Refused(str(error)) from None
        except (TimeoutError, OSError) as error:
            raise _down(error) from None


class Untrusted(StoreDown):
    """Store and client do not trust each other's certificates. Waiting does not help."""


class Refused(Exception):
    """The store answered with an error."""


def _fields(text: Any) -> dict[str, str]:
    return dict(line.split(":", 1) for line in _text(text).split("\r\n") if ":" in line)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _down(why: object) -> StoreDown:
    return StoreDown(f"the store does not answer: {why}")


def _loading(progress: object) -> Loading:
    return Loading(f"the store is loading its data: {progress}")
