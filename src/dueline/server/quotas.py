"""What each token and each namespace uses, and what it may use. All counting of such limits is here. No I/O.

    head --of(found, grant, namespace)--> Quota, or None if nothing is limited     once for a head
    request       ConnectionQuota.count    requests per second: a bucket that holds those of a second, at least 10
    connection    ConnectionQuota          it counts for the caller of its last request
    poll          with Quota.poll
    queued jobs   queue_of                 of a namespace: those that wait for a script call (engine.queue_limit)
                  Quota.queue              of a token: those of its calls
    name look-up  look_up                  of a namespace: names that pushes resolve, per second
                  choose_name              of a token: names that its calls choose for pushes, per second
    send          refuse_pending           pending jobs are counted in server.pending_jobs

These limits hold per process, except the pending jobs, which are those in the store. A Quota is made of at most two
uses: of the namespace and of the token. Uses without a reference are dropped, so clients, which choose the
namespaces, cannot fill the memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from weakref import WeakValueDictionary

from ..api.server_info import LimitUse
from ..config.settings import EVERY_NAMESPACE, NamespaceLimits
from ..dialects.native.wire import DEFAULT_NAMESPACE
from ..engine.errors import QuotaExceeded
from ..engine.queue_limit import QueueLimit
from ..metrics import table
from ..metrics.metric import Samples
from ..rights import Grant, TokenLimits
from .client_addresses import ClientAddresses, Refusal
from .router import Found

LEAST_BURST = 10
STRONG_REFS = 1024  # uses that are kept although nobody else refers to them, so that a bucket outlives its connections
MAX_NAMESPACES = 200  # with series of their own in the metrics
OTHER = "other"


UseLimits = NamespaceLimits | TokenLimits


class Owner:
    """Whose limit it is. `token_id` "": the namespace's, from this section of the settings. `refused` counts by limit,
    because a token must not see the refusals of others."""

    __slots__ = ("namespace", "refused", "section", "token_id")

    def __init__(self, namespace: str, token_id: str, section: str) -> None:
        self.namespace = namespace
        self.token_id = token_id
        self.section = section
        self.refused: Counter[str] = Counter()

    def refusal(self, limit: str, amount: str) -> str:
        if self.token_id:
            return f"The token {self.token_id} may have {amount} (limits.{limit} of the token)."
        return f'The namespace "{self.namespace}" may have {amount} ({self.section}.{limit}).'

    def named(self, limit: str) -> str:
        """The name of a limit in metrics and answers."""
        return f"token_{limit}" if self.token_id else limit


class Bucket:
    """A token bucket: it holds at most `burst`, gains `rate` per second, and has `left` now. The caller gives the time,
    which must not go back."""

    __slots__ = ("at_s", "burst", "left", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.burst = max(rate, LEAST_BURST)
        self.left = self.burst
        self.at_s = 0.0

    def wait_s(self) -> float:
        """The time until there is one."""
        return max(0.0, (1.0 - self.left) / self.rate)


def take(buckets: tuple[Bucket, ...], now_s: float) -> bool:
    """Take one token from each bucket. If one is empty, returns False and takes none. A single call, because every
    request does this."""
    for bucket in buckets:
        left = bucket.left + (now_s - bucket.at_s) * bucket.rate
        if left > bucket.burst:
            left = bucket.burst
        bucket.at_s = now_s
        if left < 1.0:
            bucket.left = left
            for taken in buckets[: buckets.index(bucket)]:
                taken.left += 1.0
            return False
        bucket.left = left - 1.0
    return True


class Use:
    """What one namespace, or one token, uses in this process. `full`: the error of a call whose jobs do not fit into
    the queue."""

    __slots__ = ("__weakref__", "bucket", "connections", "limits", "look_ups", "owner", "polls", "queue")

    def __init__(self, owner: Owner, limits: UseLimits, full: Callable[[], QuotaExceeded]) -> None:
        self.owner = owner
        self.limits = limits
        self.bucket = None if limits.requests_per_s is None else Bucket(limits.requests_per_s)
        self.connections = 0
        self.polls = 0
        self.look_ups = None if limits.look_ups_per_s is None else Bucket(limits.look_ups_per_s)
        self.queue = None if limits.max_queued_jobs is None else QueueLimit(limits.max_queued_jobs, full)

    def rows(self, pending: Mapping[str, int]) -> list[tuple[str, float | None, int | None]]:
        """(limit, what may be used, what is used). `pending`: jobs by namespace."""
        limits = self.limits
        return [
            ("requests_per_s", limits.requests_per_s, None),
            ("max_connections", limits.max_connections, self.connections),
            ("max_polls", limits.max_polls, self.polls),
            ("max_pending_jobs", limits.max_pending_jobs, pending.get(self.owner.namespace)),
            ("max_queued_jobs", limits.max_queued_jobs, 0 if self.queue is None else self.queue.jobs),
            ("look_ups_per_s", limits.look_ups_per_s, None),
        ]


class Quota:
    """The uses that a request counts for. `queue`: the limit of the jobs of the token's calls. `take(now_s)` counts a
    request. False if there have been too many; `too_many` says so."""

    __slots__ = ("__weakref__", "_quotas", "_uses", "poll", "queue", "take")

    def __init__(self, quotas: Quotas, uses: tuple[Use, ...]) -> None:
        self._quotas = quotas
        self._uses = uses
        buckets = tuple(use.bucket for use in uses if use.bucket is not None)
        self.take: Callable[[float], bool] = partial(take, buckets)
        self.queue = uses[-1].queue if uses[-1].owner.token_id else None
        self.poll = _Poll(quotas, uses)  # `with quota.poll:` around a request that may wait

    def too_many(self) -> QuotaExceeded:
        """The error of a request that `take` has refused."""
        waits = [(use.bucket.wait_s(), use.bucket.rate, use) for use in self._uses if use.bucket is not None]
        wait_s, rate, use = max(waits, key=lambda one: one[0])
        return self._quotas.refuse(use.owner, "requests_per_s", f"{rate:g} requests per second", ceil(wait_s))

    def connect(self) -> None:
        """Count a connection. Raises QuotaExceeded."""
        for use in self._uses:
            most = use.limits.max_connections
            if most is not None and use.connections >= most:
                raise self._quotas.refuse(use.owner, "max_connections", f"{most} connections")
        for use in self._uses:
            use.connections += 1

    def disconnect(self) -> None:
        for use in self._uses:
            use.connections -= 1


class _Poll:
    """Counts a request that may wait, while it is entered. Raises QuotaExceeded."""

    __slots__ = ("_quotas", "_uses")

    def __init__(self, quotas: Quotas, uses: tuple[Use, ...]) -> None:
        self._quotas = quotas
        self._uses = uses

    def __enter__(self) -> None:
        for use in self._uses:
            most = use.limits.max_polls
            if most is not None and use.polls >= most:
                raise self._quotas.refuse(use.owner, "max_polls", f"{most} polls at a time")
        for use in self._uses:
            use.polls += 1

    def __exit__(self, *_: object) -> None:
        for use in self._uses:
            use.polls -= 1


class ConnectionQuota:
    """The quota that one connection counts towards: that of its last request."""

    __slots__ = ("quota",)

    def __init__(self) -> None:
        self.quota: Quota | None = None

    def has(self, quota: Quota | None) -> bool:
        """Whether the connection counts towards it. False after a refused `count`: the connection exceeds a limit."""
        return quota is None or quota is self.quota

    def count(self, quota: Quota, now_s: float) -> None:
        """Count a request. Raises QuotaExceeded."""
        if quota is not self.quota:
            self.leave()  # first, because both may count for the same token
            quota.connect()
            self.quota = quota
        if not quota.take(now_s):
            raise quota.too_many()

    def leave(self) -> None:
        """The connection is closed, or counts for another."""
        if self.quota is not None:
            self.quota.disconnect()
            self.quota = None


class Quotas:
    """The limits of a process. `namespaces`: those of the settings; EVERY_NAMESPACE is for all others.
    `refused` is called with every refusal, for the log."""

    def __init__(
        self,
        namespaces: Mapping[str, NamespaceLimits] = {},
        refused: Callable[[str, QuotaExceeded], None] = lambda limit, error: None,
    ) -> None:
        self._namespaces = namespaces
        self._refused_one = refused
        self._uses: WeakValueDictionary[tuple[str, str | int], Use] = WeakValueDictionary()
        self._quotas: WeakValueDictionary[tuple[str, str, int], Quota] = WeakValueDictionary()
        self._strong_refs: deque[object] = deque(maxlen=STRONG_REFS)
        self._refused: Counter[tuple[str, str]] = Counter()  # by limit and namespace
        self._shown: set[str] = set(namespaces)
        self.pending: Callable[[], Mapping[str, int]] = dict  # by namespace
        self.addresses: Sequence[ClientAddresses] = ()  # of each front; they are only shown here

    def limits(self, namespace: str) -> NamespaceLimits | None:
        return self._namespaces.get(namespace) or self._namespaces.get(EVERY_NAMESPACE)

    def of(self, found: Found, grant: Grant, namespace: str | None) -> Quota | None:
        """What a request counts for. `namespace` None: the token's own, or the default. A refused request about another
        namespace counts for the token's own."""
        if not found.is_limited:
            return None
        namespace = grant.namespace or namespace
        if grant.limits is None and not self._namespaces:
            return None
        name = namespace or DEFAULT_NAMESPACE
        key = (name, grant.token_id, grant.generation)
        quota = self._quotas.get(key)
        if quota is None:
            own = self._use_of(name)
            uses = [] if own is None else [own]
            if grant.limits is not None:
                uses.append(self._token_use(grant, name, grant.limits))
            if not uses:
                return None
            quota = self._quotas[key] = Quota(self, tuple(uses))
            self._strong_refs.append(quota)
        return quota

    def max_pending_jobs(self, namespace: str) -> int | None:
        limits = self.limits(namespace)
        return None if limits is None else limits.max_pending_jobs

    def queue_of(self, namespace: str) -> QueueLimit | None:
        """The limit of the namespace's jobs that wait for a script call."""
        use = self._use_of(namespace)
        return None if use is None else use.queue

    def look_up(self, namespace: str) -> float:
        """Count a name that a push resolves. Returns how long to wait first; 0: it may be resolved now."""
        use = self._use_of(namespace)
        if use is None or use.look_ups is None:
            return 0.0
        if take((use.look_ups,), asyncio.get_running_loop().time()):
            return 0.0
        self.refuse(use.owner, "look_ups_per_s", f"{use.look_ups.rate:g} look-ups per second")
        return use.look_ups.wait_s()

    def choose_name(self, namespace: str, grant: Grant) -> None:
        """Count a host name that a call chooses for pushes: it is resolved later, when nobody knows the token. Raises
        QuotaExceeded."""
        if grant.limits is None or grant.limits.look_ups_per_s is None:
            return
        use = self._token_use(grant, namespace, grant.limits)
        if use.look_ups is not None and not take((use.look_ups,), asyncio.get_running_loop().time()):
            amount = f"{use.look_ups.rate:g} look-ups per second"
            raise self.refuse(use.owner, "look_ups_per_s", amount, ceil(use.look_ups.wait_s()))

    def refuse(self, owner: Owner, limit: str, amount: str, retry_after_s: int = 1) -> QuotaExceeded:
        """Count a refusal. Returns the error."""
        name = owner.named(limit)
        owner.refused[limit] += 1
        self._refused[(name, self._label(owner.namespace))] += 1
        error = QuotaExceeded(owner.refusal(limit, amount), retry_after_s=max(1, retry_after_s))
        self._refused_one(name, error)
        return error

    def refuse_pending(self, namespace: str, max_jobs: int, grant: Grant | None = None) -> QuotaExceeded:
        """Count a send that was refused because of the namespace's pending jobs. `grant`: by the limit of this caller's
        token. Returns the error."""
        if grant is None or grant.limits is None:
            owner, amount = self._owner(namespace), f"{max_jobs} pending jobs"
        else:
            owner = self._token_use(grant, namespace, grant.limits).owner
            amount = f"{max_jobs} pending jobs in its namespace"
        return self.refuse(owner, "max_pending_jobs", amount)

    def _owner(self, namespace: str) -> Owner:
        return Owner(namespace, "", self._section(namespace))

    def _section(self, namespace: str) -> str:
        return f"namespaces.{namespace if namespace in self._namespaces else EVERY_NAMESPACE}"

    def _use_of(self, namespace: str) -> Use | None:
        use = self._uses.get((namespace, ""))
        if use is None and (limits := self.limits(namespace)) is not None:
            use = self._uses[(namespace, "")] = self._new_use(self._owner(namespace), limits)
            self._strong_refs.append(use)
        return use

    def _new_use(self, owner: Owner, limits: UseLimits) -> Use:
        amount = f"{limits.max_queued_jobs} jobs waiting at a time"
        return Use(owner, limits, partial(self.refuse, owner, "max_queued_jobs", amount))

    def _token_use(self, grant: Grant, namespace: str, limits: UseLimits) -> Use:
        """A token that is valid in several namespaces has one use for all of them."""
        key = (grant.token_id, grant.generation)
        use = self._uses.get(key)
        if use is None:
            owner = Owner(grant.namespace or namespace, grant.token_id, "")
            use = self._uses[key] = self._new_use(owner, limits)
            self._strong_refs.append(use)
        return use

    def _label(self, namespace: str) -> str:
        """The namespace in metrics. Clients choose the names, so their number is bounded."""
        if namespace not in self._shown:
            if len(self._shown) >= MAX_NAMESPACES:
                return OTHER
            self._shown.add(namespace)
        return namespace

    # -- shown

    def in_use(self) -> list[LimitUse]:
        """Every limit with what is used of it, for /v1/info."""
        found: list[LimitUse] = []
        for limit in Refusal if self.addresses else ():
            uses = [one.in_use()[limit] for one in self.addresses]
            refused = sum(one.refused[limit] for one in self.addresses)
            found.append(LimitUse(limit, uses[0][0], max(used for _, used in uses), refused))
        pending = self.pending()
        for use in list(self._uses.values()):
            owner = use.owner
            found += [
                LimitUse(
                    owner.named(name),
                    limit,
                    used,
                    owner.refused[name] if owner.token_id else self._refused[(name, self._label(owner.namespace))],
                    owner.namespace,
                    owner.token_id or None,
                )
                for name, limit, used in use.rows(pending)
                if limit is not None
            ]
        return found

    def samples(self) -> list[Samples]:
        """What is used and what was refused, by limit and namespace."""
        used: dict[tuple[str, ...], float] = {}
        refused: dict[tuple[str, ...], float] = {**self._refused}
        for row in self.in_use():
            key = (row.limit, "" if row.namespace is None else self._label(row.namespace))
            if row.used is not None:
                used[key] = max(used.get(key, 0), row.used)
            if row.namespace is None:
                refused[key] = row.refused
        return [table.LIMIT_USE.samples(used), table.LIMIT_REFUSED.samples(refused)]
