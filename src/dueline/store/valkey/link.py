"""The link to a store: all its connections, one per node, and the way of each call to the primary of its key.

    standalone   the only node
    Sentinel     the primary that the sentinels name
    Cluster      the primary of the key's slot

The layout (who is primary for which slots) is asked for at the first call, and again whenever something does not fit
it: a redirection, a node that is silent, lost or not a primary, or one that refuses because it fails over. A node that
is not a primary any more is cut: calls without a reply, and connects under way, fail at once, and `calls` repeats them
on the new primary. Redirections are followed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from ...engine.completion import Done
from ...engine.guards import Guard, GuardWatch
from ...store_address import Endpoint, Kind, parse_store_url
from .connections import CONNECT_TIMEOUT_S
from .connector import Connector
from .link_errors import LinkLost, NotNow, WrongKind
from .node import Node, PipelinedConnection
from .resp import command
from .tls import StoreTls
from .topology import SLOTS, Layout, topology_of
from .witness import Replication

__all__ = ["CONNECT_TIMEOUT_S", "Link", "LinkLost", "NotNow", "WrongKind"]

REDIRECTIONS = 5
BETWEEN_LOOKS_S = 0.05  # between two questions for the layout
LEAST_REST_S = 0.01  # between two tries of a call, even if something has changed meanwhile
ASKING = command(("ASKING",))


class Link:
    """All connections to one store. Error replies are raised as redis-py's ResponseError. `primaries_only` False: a
    node is used even if it says that it is not a primary. `replication`: changes are answered when a replica has them.
    `guards` hears why nodes refuse calls. Partitions keep permanent keys on a Cluster."""

    def __init__(
        self,
        url: str,
        reply_timeout_s: float = 10.0,
        *,
        tls: StoreTls = StoreTls(),
        primaries_only: bool = True,
        replication: Replication | None = None,
        guards: GuardWatch | None = None,
    ) -> None:
        self.address = parse_store_url(url)
        self.permanent_keys = self.address.kind is Kind.CLUSTER
        self.fails_over = self.address.kind is not Kind.STANDALONE
        self._reply_timeout_s = reply_timeout_s
        self._primaries_only = primaries_only
        self.replication = replication
        self.guards = guards
        self._answered_by: PipelinedConnection | None = None
        self._connector = Connector.of_nodes(self.address, tls)
        self._topology = topology_of(self.address, tls)
        self._nodes: dict[Endpoint, Node] = {}
        self._layout: Layout = ()
        self._only: Node | None = None  # the primary of all slots, unless it is a Cluster
        self._slots: list[Node | None] = []
        self._finding: asyncio.Task[None] | None = None
        self._found_at_s = 0.0
        self._moved = False  # a redirection has changed the slots since the layout was found
        self._watchers: list[Callable[[], None]] = []
        self._watched: list[Endpoint | None] = []  # the owners that the watchers know
        self._stopped = False
        self._recovery: asyncio.Future[None] | None = None  # what resting calls wait for

    async def start(self) -> None:
        """Allow calls again after `stop`. The first call connects."""
        self._stopped = False

    async def stop(self) -> None:
        self._stopped = True
        finding, self._finding = self._finding, None
        if finding is not None and not finding.done():
            finding.cancel()
            await asyncio.wait([finding])
        nodes, self._nodes, self._layout, self._only, self._slots = self._nodes, {}, (), None, []
        for node in nodes.values():
            await node.stop()

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a slot has moved to another primary."""
        self._watchers.append(changed)

    async def rest(self, seconds: float) -> None:
        """The pause before a call is tried again. It ends when a new try may help: the layout has changed, a node is
        connected again, or its replicas confirm again. So waiting calls go on together with the first that succeeds."""
        await asyncio.sleep(min(seconds, LEAST_REST_S))
        if seconds > LEAST_REST_S:
            if self._recovery is None:
                self._recovery = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._recovery], timeout=seconds - LEAST_REST_S)

    def _recovered(self) -> None:
        recovery, self._recovery = self._recovery, None
        if recovery is not None:
            recovery.set_result(None)

    async def call(self, key: str, *args: Any) -> Any:
        """One command on the primary of `key`. Raises LinkLost or NotNow, or the error of the call."""
        node = self._only or self._slot(key)
        packed, unread = command(args), 0
        for _ in range(REDIRECTIONS):
            if node is None:
                node = await self._find_primary(key)
            connection = node.connection
            if connection is None:
                connection = await node.connected()
            try:
                reply = await connection.send(packed, unread)
                self._answered_by = connection
                return reply
            except (ResponseError, BusyLoadingError) as error:
                redirected = self._redirected(node, error)
                if redirected is None:
                    raise
                unread = 0
                if isinstance(error, MovedError):
                    node, packed = redirected, command(args)
                else:
                    node, packed, unread = redirected, ASKING + command(args), 1
        raise NotNow("the slot keeps moving between the nodes")

    def post(self, key: str, args: tuple[Any, ...], on_reply: Done) -> bool:
        """One command without waiting: `on_reply` gets the reply, LinkLost, NotNow, or the error of the call. False:
        nothing was sent, and the caller awaits `call` or `change`."""
        node = self._only or self._slot(key)
        connection = None if node is None else node.connection
        if node is None or connection is None or self.replication is not None:
            return False
        connection.post(command(args), partial(self._replied, node, on_reply))
        return True

    def _replied(self, node: Node, on_reply: Done, reply: Any) -> None:
        if isinstance(reply, ResponseError | BusyLoadingError):
            try:
                if self._redirected(node, reply) is not None:
                    reply = NotNow("the slot has moved to another node")
            except NotNow as error:
                reply = error
        on_reply(reply)

    async def change(self, key: str, *args: Any) -> Any:
        """A call whose answer counts when a replica has it, if that is asked for. Otherwise it raises LinkLost."""
        reply = await self.call(key, *args)
        connection = self._answered_by  # of this call: nothing else runs between its return and here
        if connection is not None and connection.witness is not None:
            await connection.witness.covered(key)
        return reply

    async def call_node(self, endpoint: Endpoint, *args: Any) -> Any:
        """One command on one of `primaries`."""
        return await (await self._node(endpoint).connected()).send(command(args))

    async def primaries(self) -> tuple[Endpoint, ...]:
        """All primaries, as they are now. Raises LinkLost or WrongKind."""
        if self._topology.known is None or not self._layout:
            await asyncio.shield(self.find())
        return tuple(dict.fromkeys(owned.primary for owned in self._layout))

    async def owner(self, key: str) -> Endpoint:
        """The primary of a key or channel. Raises LinkLost or NotNow."""
        return (self._only or self._slot(key) or await self._find_primary(key)).endpoint

    def owner_now(self, key: str) -> Endpoint | None:
        """The owner, if the layout is known; asks nobody."""
        node = self._only or self._slot(key)
        return None if node is None else node.endpoint

    async def open(self, endpoint: Endpoint) -> AbstractConnection:
        """A connection of the caller's own to a primary. Raises LinkLost."""
        return await self._node(endpoint).open()

    def moved(self, asked: Endpoint, error: MovedError) -> None:
        """A node names the new node of a slot. The layout is read again, because others may have moved with it."""
        if self._slots:
            self._slots[error.slot_id] = self._node(Endpoint(error.host or asked.host, error.port))
            self._moved = True
            self._trouble()

    def find(self) -> asyncio.Task[None]:
        """Ask for the layout, unless that is already under way."""
        if self._finding is None or self._finding.done():
            self._finding = asyncio.get_running_loop().create_task(self._find())
            self._finding.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as seen
        return self._finding

    def _trouble(self) -> None:
        """Something does not fit the layout."""
        if not self._stopped and self._topology.known is None:
            self.find()

    async def _find(self) -> None:
        clock = asyncio.get_running_loop().time
        rest_s = self._found_at_s + BETWEEN_LOOKS_S - clock()
        if rest_s > 0:
            await asyncio.sleep(rest_s)
        try:
            layout = await self._topology.find(tuple(self._nodes))
        finally:
            self._found_at_s = clock()
        if not self._stopped:
            self._use(layout)

    def _use(self, layout: Layout) -> None:
        """Route by this layout from now on, and cut the primaries that it does not have any more. A node that only a
        redirection has named is left alone, because the layout may not know it yet."""
        if layout == self._layout and not self._moved:
            return
        replaced = {owned.primary for owned in self._layout} - {owned.primary for owned in layout}
        self._layout, self._moved = layout, False
        for endpoint in replaced & self._nodes.keys():
            self._nodes.pop(endpoint).cut(f"{endpoint} is not a primary any more")
        if self.address.kind is Kind.CLUSTER:
            slots: list[Node | None] = [None] * SLOTS
            for low, high, primary in layout:
                slots[low : high + 1] = [self._node(primary)] * (high + 1 - low)
            self._slots = slots
        else:
            self._only = self._node(layout[0].primary)
        nodes = [self._only] if self._only is not None else self._slots
        owners = [None if node is None else node.endpoint for node in nodes]
        if owners != self._watched:
            self._watched = owners
            for changed in self._watchers:
                changed()
            self._recovered()

    def _node(self, endpoint: Endpoint) -> Node:
        node = self._nodes.get(endpoint)
        if node is None:
            node = self._nodes[endpoint] = Node(
                endpoint,
                self._connector,
                self._reply_timeout_s,
                self._trouble,
                self._primaries_only,
                self.replication,
                lambda: self._trip(Guard.NOT_REPLICATED, endpoint, f"no replica of {endpoint} confirms changes"),
                self._recovered,
            )
        return node

    def trip(self, guard: Guard, key: str, detail: str) -> None:
        """Report why a call on a key was refused."""
        self._trip(guard, self.owner_now(key), detail)

    def _trip(self, guard: Guard, endpoint: Endpoint | None, detail: str) -> None:
        if self.guards is not None:
            self.guards.tripped(guard, str(endpoint or ""), detail)

    def _slot(self, key: str) -> Node | None:
        return self._slots[slot_of(key)] if self._slots else None

    async def _find_primary(self, key: str) -> Node:
        if self._stopped:
            raise LinkLost("the store connection is closed", False)
        try:
            await asyncio.shield(self.find())
        except asyncio.CancelledError:
            if self._stopped:
                raise LinkLost("the store connection is closed", False) from None
            raise
        node = self._only or self._slot(key)
        if node is None:
            raise NotNow(f"no node of the Cluster serves slot {slot_of(key)}")
        return node

    def _redirected(self, node: Node, error: ResponseError | BusyLoadingError) -> Node | None:
        """The node that an error reply names; None: it names none, and is an error of the call itself. Raises NotNow if
        the call can be repeated later."""
        if isinstance(error, AskError):  # and MovedError
            if not self._slots:
                raise NotNow("the store has become a node of a Cluster") from None
            if isinstance(error, MovedError):
                self.moved(node.endpoint, error)
            return self._node(Endpoint(error.host or node.endpoint.host, error.port))
        if isinstance(error, TryAgainError):
            raise NotNow("a slot is being moved to another node") from None
        if isinstance(error, BusyLoadingError):
            self._trouble()
            raise NotNow(str(error), loading=True) from None
        if isinstance(error, ReadOnlyError):
            node.retire()  # the next connection asks for its role
            self._trouble()
            self._trip(Guard.READ_ONLY, node.endpoint, f"{node.endpoint} is a replica")
            raise NotNow(f"{node.endpoint} has become a replica") from None
        if isinstance(error, ClusterDownError):  # and MasterDownError
            self._trouble()
            raise NotNow(f"the Cluster does not serve this slot: {error}") from None
        text = str(error)
        if text.startswith(("NOREPLICAS", "BUSY ")):
            self._trouble()
            if text.startswith("NOREPLICAS"):
                self._trip(Guard.NOT_REPLICATED, node.endpoint, f"{node.endpoint} has too few replicas: {text}")
            raise NotNow(text) from None
        if isinstance(error, OutOfMemoryError) or text.startswith("OOM"):
            self._trip(Guard.STORE_FULL, node.endpoint, f"{node.endpoint} has no memory left")
        elif text.startswith("MISCONF"):
            self._trip(Guard.DISK_FULL, node.endpoint, f"{node.endpoint} cannot write to its disk: {text}")
        return None


@lru_cache(16_384)
def slot_of(key: str) -> int:
    return key_slot(key.encode())
