"""What a server reports about itself: its limits, its readiness."""

from __future__ import annotations

from typing import Any

import msgspec


class LimitUse(msgspec.Struct, frozen=True):
    """A limit, what is used of it now, and how often it has refused since the start of the process that answers.
    `namespace` None: a limit of client addresses; `used` is that of the address with the most."""

    limit: str
    max: float
    used: float | None = None
    refused: int = 0
    namespace: str | None = None
    token_id: str | None = None


class Access(msgspec.Struct, frozen=True):
    """What the caller may do. `token_id` and `name` are those of its token, null if the server checks none.
    `namespace` null: all of them. `expires_at_ms` null: never."""

    rights: tuple[str, ...]
    namespace: str | None = None
    topics: tuple[str, ...] = ("*",)
    token_id: str | None = None
    name: str | None = None
    expires_at_ms: int | None = None


class Shard(msgspec.Struct, frozen=True):
    """A primary of the store, as it was a few seconds ago. `max_memory_bytes` null: it has no limit. `aof_ok`: it
    writes its append-only file without errors."""

    name: str
    role: str
    memory_bytes: int
    max_memory_bytes: int | None
    replicas: int
    aof_ok: bool


class Info(msgspec.Struct, frozen=True):
    """What a server reports about itself. `namespace` is that of the request. `auth` "none": tokens are not checked.
    `dialects`: who may call each foreign dialect ([dialects.NAME] auth), or "off".
    `limits_in_use`: the limits of this namespace, of the caller's token and of client addresses. `access`: what the
    caller may do. `shards`: one, unless the store is a Cluster. `disk_free_bytes`: of an embedded store."""

    version: str
    namespace: str = "default"
    durability: str = ""
    store: str = ""
    limits: dict[str, int] = {}
    clock_offset_ms: int = 0
    auth: str | None = None
    dialects: dict[str, str] = {}
    limits_in_use: tuple[LimitUse, ...] = ()
    access: Access | None = None
    shards: tuple[Shard, ...] = ()
    disk_free_bytes: int | None = None


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a server is ready, and if not, why. `warnings`: problems that do not make it unready."""

    ready: bool
    reasons: tuple[Any, ...] = ()
    warnings: tuple[Any, ...] = ()
