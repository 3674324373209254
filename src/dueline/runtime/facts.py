"""What a store reports about itself, and what that means for jobs. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ..store_address import Kind, StoreAddress

ROOM_AGAIN = 0.95
REPLICA_LAG_S = 3  # a replica reports once a second
_REPLICA = re.compile(r"slave\d+")  # of INFO
LEAST_VERSION = {"redis": (7, 0), "valkey": (7, 2)}


class NodeFacts(msgspec.Struct, frozen=True):
    """What one primary reports. `prompt_replicas`: those that are up to date with its writes. `rdb_ok`: its last
    snapshot was written. `cluster_ok`: it serves its slots; None: it is not a node of a Cluster."""

    node: str
    server: str
    version: tuple[int, ...]
    role: str
    maxmemory_bytes: int
    maxmemory_policy: str
    memory_bytes: int
    aof: bool
    aof_ok: bool
    replicas: int
    prompt_replicas: int = 0
    rdb_ok: bool = True
    oom_refusals: int = 0
    cluster_ok: bool | None = None

    @property
    def name(self) -> str:
        """Such as "valkey 9.1.2"."""
        return f"{self.server} {'.'.join(map(str, self.version))}"


class AbsentNode(msgspec.Struct, frozen=True):
    """A primary that cannot be used now: the code of the error that its calls get, and the reason."""

    node: str
    code: str
    message: str


class StoreFacts(msgspec.Struct, frozen=True):
    """A whole store: its primaries (one, unless it is a Cluster), and those that cannot be used now. At least one can.
    `appendfsync` None: unknown, because managed stores refuse CONFIG."""

    address: StoreAddress
    nodes: tuple[NodeFacts, ...]
    absent: tuple[AbsentNode, ...] = ()
    appendfsync: str | None = None

    @property
    def name(self) -> str:
        """Such as "valkey 9.1.2", or "valkey 9.1.2, 3 shards"."""
        names = "/".join(dict.fromkeys(node.name for node in self.nodes))
        shards = len(self.nodes) + len(self.absent)
        return f"{names}, {shards} shards" if self.address.kind is Kind.CLUSTER else names

    @property
    def aof(self) -> bool:
        return all(node.aof for node in self.nodes)

    @property
    def aof_ok(self) -> bool:
        return all(node.aof_ok for node in self.nodes)

    @property
    def memory_bytes(self) -> int:
        return sum(node.memory_bytes for node in self.nodes)

    @property
    def maxmemory_bytes(self) -> int:
        """The limit of all nodes together; 0: one of them has none."""
        limits = [node.maxmemory_bytes for node in self.nodes]
        return sum(limits) if all(limits) else 0

    @property
    def replicas(self) -> int:
        """The number of replicas of the primary that has the fewest."""
        return min(node.replicas for node in self.nodes)

    def of(self, node: str) -> NodeFacts | None:
        return next((one for one in self.nodes if one.node == node), None)


def facts_of(node: str, fields: dict[str, str]) -> NodeFacts:
    """The facts in the lines of INFO and CLUSTER INFO."""
    server = "valkey" if fields.get("server_name") == "valkey" or "valkey_version" in fields else "redis"
    written = fields.get(f"{server}_version", fields.get("redis_version", "0"))
    return NodeFacts(
        node=node,
        server=server,
        version=tuple(int(part) for part in written.split(".") if part.isdigit()),
        role=fields.get("role", "unknown"),
        maxmemory_bytes=int(fields.get("maxmemory", "0") or 0),
        maxmemory_policy=fields.get("maxmemory_policy", "noeviction"),
        memory_bytes=int(fields.get("used_memory", "0") or 0),
        aof=fields.get("aof_enabled", "0") == "1",
        aof_ok=fields.get("aof_last_write_status", "ok") == "ok",
        replicas=int(fields.get("connected_slaves", "0") or 0),
        prompt_replicas=sum(_is_prompt(value) for name, value in fields.items() if _REPLICA.fullmatch(name)),
        rdb_ok=fields.get("rdb_last_bgsave_status", "ok") == "ok",
        oom_refusals=int(fields.get("errorstat_OOM", "count=0").removeprefix("count=").partition(",")[0]),
        cluster_ok=fields.get("cluster_state", "ok") == "ok" if fields.get("cluster_enabled") == "1" else None,
    )


def is_full(facts: NodeFacts, before: NodeFacts | None, was_full: bool) -> bool:
    """Whether a node refuses sends because its memory is full, or has done so since the previous check.

    The request itself takes memory, so a large one is refused a little below the limit. A store that was full counts as
    full until 5 % are free, because close to its limit it accepts one send and refuses the next.
    """
    if not 0 < facts.maxmemory_bytes * ROOM_AGAIN <= facts.memory_bytes:
        return False
    refused = before is not None and facts.oom_refusals > before.oom_refusals
    return was_full or refused or facts.memory_bytes >= facts.maxmemory_bytes


def shard_words(store: StoreFacts, facts: NodeFacts) -> str:
    """How a primary is called in a message."""
    return "the store" if store.address.kind is not Kind.CLUSTER else f"the shard {facts.node}"


def refusals(store: StoreFacts) -> Iterator[str]:
    """Why a server must not start on this store, as sentences."""
    yield from mismatches(store)
    for facts in store.nodes:
        name = shard_words(store, facts)
        if facts.role != "master":
            yield f"{name} is a {facts.role}: give the address of the primary"
        if (why := may_evict(store, facts)) is not None:
            yield f"{why}. Set it to noeviction"


def mismatches(store: StoreFacts) -> Iterator[str]:
    """Why this is not a store for this program, as sentences."""
    for facts in store.nodes:
        name = shard_words(store, facts)
        if facts.version[:2] < LEAST_VERSION[facts.server]:
            yield f"{name} is {facts.name}; at least Redis 7.0 or Valkey 7.2 is needed"
        if facts.cluster_ok is not None and store.address.kind is not Kind.CLUSTER:
            yield f"the store is a node of a Cluster: give its address as {store.address.shown_cluster}"


def may_evict(store: StoreFacts, facts: NodeFacts) -> str | None:
    """Why a primary may delete jobs: it has a memory limit and an eviction policy. None: it never does."""
    if facts.maxmemory_bytes == 0 or facts.maxmemory_policy == "noeviction":
        return None
    name, policy = shard_words(store, facts), facts.maxmemory_policy
    return f'{name} may delete jobs when its memory is full: its maxmemory-policy is "{policy}"'


def _is_prompt(replica: str) -> bool:
    """Whether a line about a replica in INFO says that it is up to date."""
    fields = dict(part.split("=", 1) for part in replica.split(",") if "=" in part)
    lag = fields.get("lag", "")
    return fields.get("state") == "online" and lag.isdigit() and int(lag) <= REPLICA_LAG_S


def store_words(kind: str, facts: StoreFacts | None) -> str:
    """A description of a store. `kind` names it, without secrets; the facts may not be known yet."""
    if facts is None:
        return kind
    written = facts.appendfsync or "unknown"
    return f"{kind}, {facts.name}, appendonly {'yes' if facts.aof else 'no'}, appendfsync {written}"
