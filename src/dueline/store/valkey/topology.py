"""Who is primary for which slots: asked of the sentinels or of the nodes of a Cluster.

All of them are asked side by side, because one that hangs must not delay the others, and one may not know yet.
The answer with the highest epoch counts: every failover and every finished move of a slot raises it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from ...store_address import Endpoint, Kind, StoreAddress
from .connector import Connector
from .link_errors import LinkLost, WrongKind
from .tls import StoreTls

SLOTS = 16_384
ASKED_NODES = 16  # of a Cluster; more would not know more
ANSWER_TIMEOUT_S = 1.0
LATER_ANSWERS_S = 0.1  # how long to wait for more answers after the first one


class Range(NamedTuple):
    """The primary of the slots from `low` to `high`."""

    low: int
    high: int
    primary: Endpoint


Layout = tuple[Range, ...]
Commands = Sequence[tuple[str, ...]]
Answer = TypeVar("Answer")


class Topology(Protocol):
    """`known`: the layout, if no node has to be asked for it."""

    known: Layout | None

    async def find(self, nodes: Iterable[Endpoint]) -> Layout:
        """The layout now. `nodes`: the primaries known so far. Raises LinkLost or WrongKind."""
        ...


def topology_of(address: StoreAddress, tls: StoreTls) -> Topology:
    if address.kind is Kind.SENTINEL:
        return Sentinels(address, tls)
    return ClusterNodes(address, tls) if address.kind is Kind.CLUSTER else OneNode(address)


class OneNode:
    """One node that never changes."""

    def __init__(self, address: StoreAddress) -> None:
        self.known: Layout | None = (Range(0, SLOTS - 1, address.endpoints[0]),)

    async def find(self, nodes: Iterable[Endpoint]) -> Layout:
        return self.known or ()


class Sentinels:
    """The primary that the sentinels of a service name."""

    known: Layout | None = None

    def __init__(self, address: StoreAddress, tls: StoreTls) -> None:
        self._endpoints = address.endpoints
        self._service = address.service
        self._connector = Connector.of_sentinels(address, tls)

    async def find(self, nodes: Iterable[Endpoint]) -> Layout:
        # The second answer changes only when a failover is over, but it has the epoch.
        commands = (("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service), ("SENTINEL", "MASTER", self._service))
        answers, errors = await _ask(self._connector, self._endpoints, commands, _sentinel_answer)
        named = [(epoch, primary) for epoch, primary in answers if primary is not None]
        if named:
            return (Range(0, SLOTS - 1, max(named, key=lambda one: one[0])[1]),)
        if answers:
            raise LinkLost(f'the sentinels do not know the service "{self._service}"', False)
        raise _lost("no sentinel answers", errors)


class ClusterNodes:
    """The slots of a Cluster."""

    known: Layout | None = None

    def __init__(self, address: StoreAddress, tls: StoreTls) -> None:
        self._seeds = address.endpoints
        self._connector = Connector.of_nodes(address, tls)
        self._replicas: frozenset[Endpoint] = frozenset()

    async def find(self, nodes: Iterable[Endpoint]) -> Layout:
        known = [*dict.fromkeys((*nodes, *self._seeds, *self._replicas))]
        known = known if len(known) <= ASKED_NODES else random.sample(known, ASKED_NODES)
        commands = (("CLUSTER", "INFO"), ("CLUSTER", "SLOTS"))
        answers, errors = await _ask(self._connector, known, commands, _cluster_answer)
        if answers:
            best = max(answers, key=lambda one: one.rank)
            self._replicas = best.replicas
            return best.layout
        for error in errors:
            if isinstance(error, ResponseError) and "cluster support disabled" in str(error):
                raise WrongKind("the store is not a node of a Cluster: give its address as redis://")
        raise _lost("no node of the Cluster answers", errors)


class _ClusterAnswer(NamedTuple):
    rank: tuple[bool, int]  # it takes part in the Cluster, its epoch
    layout: Layout
    replicas: frozenset[Endpoint]


def _sentinel_answer(endpoint: Endpoint, replies: list[Any]) -> tuple[int, Endpoint | None]:
    address, fields = replies
    if isinstance(address, Exception):
        raise address
    if not address:
        return 0, None
    values = dict(zip(fields[::2], fields[1::2], strict=False)) if isinstance(fields, list) else {}
    return int(values.get(b"config-epoch", 0)), Endpoint(address[0].decode(), int(address[1]))


def _cluster_answer(endpoint: Endpoint, replies: list[Any]) -> _ClusterAnswer:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    info = dict(line.split(":", 1) for line in replies[0].decode().split("\r\n") if ":" in line)
    layout: list[Range] = []
    replicas: set[Endpoint] = set()
    for low, high, primary, *others in sorted(replies[1], key=lambda row: row[0]):
        layout.append(Range(low, high, _announced(primary, endpoint)))
        replicas.update(_announced(other, endpoint) for other in others)
    rank = (info.get("cluster_state") == "ok", int(info.get("cluster_current_epoch", "0")))
    return _ClusterAnswer(rank, tuple(layout), frozenset(replicas))


def _announced(node: list[Any], asked: Endpoint) -> Endpoint:
    """The endpoint of a node. Without a host it is on the host that was asked."""
    host = (node[0] or b"").decode()
    return Endpoint(asked.host if host in ("", "?") else host, int(node[1]))


async def _ask(
    connector: Connector,
    endpoints: Sequence[Endpoint],
    commands: Commands,
    read: Callable[[Endpoint, list[Any]], Answer],
) -> tuple[list[Answer], list[BaseException]]:
    """The answers that came in time, and why others did not."""

    async def one(endpoint: Endpoint) -> Answer:
        connection = await connector.open(endpoint, timeout_s=ANSWER_TIMEOUT_S)
        try:
            return read(endpoint, await _replies(connection, commands))
        finally:
            await connection.disconnect(nowait=True)

    waiting = {asyncio.ensure_future(one(endpoint)) for endpoint in endpoints}
    answers: list[Answer] = []
    errors: list[BaseException] = []
    loop = asyncio.get_running_loop()
    until_s = loop.time() + ANSWER_TIMEOUT_S
    try:
        while waiting and (rest_s := until_s - loop.time()) > 0:
            done, waiting = await asyncio.wait(waiting, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is not None:
                    errors.append(error)
                    continue
                answers.append(task.result())
                until_s = min(until_s, loop.time() + LATER_ANSWERS_S)
    finally:
        for task in waiting:
            task.cancel()
            task.add_done_callback(lambda late: late.cancelled() or late.exception())
    for error in errors:
        if not isinstance(error, LinkLost | RedisError | OSError | ValueError | RuntimeError):  # uvloop's: it is closed
            raise error
    return answers, errors


async def _replies(connection: AbstractConnection, commands: Commands) -> list[Any]:
    """The replies; an error reply is an exception among them."""
    for command in commands:
        await connection.send_command(*command)
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(await connection.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies


def _lost(what: str, errors: list[BaseException]) -> LinkLost:
    because = "; ".join(dict.fromkeys(str(error) for error in errors)) or "they are silent"
    untrusted = any(isinstance(error, LinkLost) and error.untrusted for error in errors)
    return LinkLost(f"{what}: {because}", False, untrusted=untrusted)
