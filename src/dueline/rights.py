"""What a caller may be allowed to do. Every route declares the right that it needs; a Grant is what one caller has."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

ALL = "*"


class Right(StrEnum):
    NONE = "none"  # public: health, the API's description
    SEND = "send"
    PULL = "pull"  # take, ack, release and extend jobs
    READ = "read"
    MANAGE = "manage"  # change or remove jobs and topics
    PUSH = "push"  # make the server call a URL or a service
    ADMIN = "admin"  # change the server itself; includes every other right


class TokenLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a token may use. None: no limit of its own. `look_ups_per_s`: host names that its calls choose for pushes.
    `push_allow`: the only networks and names that they may choose."""

    requests_per_s: float | None = None
    max_connections: int | None = None
    max_polls: int | None = None
    max_pending_jobs: int | None = None
    max_queued_jobs: int | None = None
    look_ups_per_s: float | None = None
    push_allow: tuple[str, ...] | None = None


class Grant(msgspec.Struct, frozen=True, cache_hash=True):
    """The rights of one caller. `namespace` None: in every namespace. `topics` are patterns with *, ? and [...].
    `token_id`, `generation` and `name` say by which token it was given; they are empty for a caller without one.
    `secret` tells the secrets of a rotated token apart, without revealing them. `expires_at_ms`: when this secret ends,
    on the store's clock."""

    rights: frozenset[Right]
    namespace: str | None = None
    topics: tuple[str, ...] = (ALL,)
    token_id: str = ""
    generation: int = 0
    name: str = ""
    secret: str = ""
    expires_at_ms: int | None = None
    limits: TokenLimits | None = None

    @property
    def push_allow(self) -> tuple[str, ...] | None:
        return None if self.limits is None else self.limits.push_allow

    def allows(self, right: Right) -> bool:
        return right in self.rights or Right.ADMIN in self.rights or right is Right.NONE

    def reaches(self, namespace: str) -> bool:
        """Whether it is valid in a namespace. ALL: in every one."""
        return self.namespace is None or self.namespace == namespace

    def covers(self, topic: str) -> bool:
        return ALL in self.topics or any(fnmatchcase(topic, pattern) for pattern in self.topics)

    @property
    def covers_all(self) -> bool:
        """Whether it is valid for every topic."""
        return ALL in self.topics


EVERYTHING = Grant(frozenset({Right.ADMIN}))  # of a server that checks no tokens, and of callers in its process
