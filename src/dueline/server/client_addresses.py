"""How many connections each client address has on one front, so that one address cannot take them all. No I/O.

    arrive --> Admission: may call everything, or only ask for health
    begin_request, end_request      around a request that did not arrive in one piece; a TLS handshake counts as one
    leave                           the connection is closed

An address has a share: at most `max_per_address` connections, and `max_unfinished` of them with an unfinished request.
An IPv6 client counts by its /64, because it can use any address of it. Clients of a unix socket have no address and no
share.

When all connections are taken, the address with the most of them gives one up for a client of an address that has
fewer: the one that has been idle longest, of the first few looked at. So many addresses together cannot lock out a
newcomer either, unless they keep all their connections busy.

A few more connections are kept for health checks. They may ask for nothing else, for a short time, and a new one
replaces the oldest. One address has two of them.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from ipaddress import IPv6Address
from itertools import islice
from typing import Protocol

KEPT_FOR_HEALTH = 32
KEPT_PER_ADDRESS = 2
LOOKED_AT = 64  # connections of the address with the most, when one of them has to go


class Refusal(StrEnum):
    """Which limit refused a connection. The values are the names of settings in [server]."""

    ALL = "max_connections"
    ADDRESS = "max_connections_per_address"
    UNFINISHED = "max_unfinished_per_address"


class Client(Protocol):
    """A connection as it is seen here."""

    @property
    def idle_since_s(self) -> float | None:
        """Since when it waits for a whole request. None: it is being answered."""
        ...

    def close(self) -> None:
        """Close the connection, because its place is needed."""
        ...


class AddressUse:
    """The connections of one address."""

    __slots__ = ("admissions", "has_share", "health", "key", "unfinished")

    def __init__(self, key: str) -> None:
        self.key = key
        self.has_share = key != ""
        self.admissions: dict[Admission, None] = {}  # the oldest first
        self.health: dict[Admission, None] = {}
        self.unfinished = 0


class Admission:
    """One connection. `refusal` is set if it may only ask for health: why."""

    __slots__ = ("client", "is_unfinished", "refusal", "use")

    def __init__(self, use: AddressUse, client: Client, refusal: Refusal | None) -> None:
        self.use = use
        self.client = client
        self.refusal = refusal
        self.is_unfinished = False


class ClientAddresses:
    """The connections of one front, by address. `refused` counts what was refused, by limit."""

    def __init__(self, max_connections: int, max_per_address: int, max_unfinished: int) -> None:
        self._max_connections = max_connections
        self._max_per_address = max_per_address
        self._max_unfinished = max_unfinished
        self._uses: dict[str, AddressUse] = {}
        self._by_count: dict[int, dict[AddressUse, None]] = {}  # addresses by their number of connections
        self._most = 0  # the highest of these numbers
        self._health: dict[Admission, None] = {}
        self.connections = 0  # without those that are kept for health
        self.refused: Counter[Refusal] = Counter()

    def in_use(self) -> dict[Refusal, tuple[int, int]]:
        """Each limit, and what is used of it: by the address that uses the most, or by all."""
        unfinished = max((use.unfinished for use in self._uses.values()), default=0)
        return {
            Refusal.ALL: (self._max_connections, self.connections),
            Refusal.ADDRESS: (self._max_per_address, self._most),
            Refusal.UNFINISHED: (self._max_unfinished, unfinished),
        }

    def arrive(self, host: str, client: Client, shakes_hands: bool = False) -> Admission:
        """Count a new connection. `shakes_hands`: it begins with a TLS handshake, an unfinished request."""
        key = address_key(host)
        use = self._uses.get(key)
        if use is None:
            use = self._uses[key] = AddressUse(key)
        if use.has_share and len(use.admissions) >= self._max_per_address:
            return self._keep_for_health(use, client, Refusal.ADDRESS)
        if shakes_hands and use.has_share and use.unfinished >= self._max_unfinished:
            return self._keep_for_health(use, client, Refusal.UNFINISHED)
        if self.connections >= self._max_connections and not self._make_room(use):
            return self._keep_for_health(use, client, Refusal.ALL)
        admission = Admission(use, client, None)
        before = len(use.admissions)
        use.admissions[admission] = None
        self.connections += 1
        self._recount(use, before)
        if shakes_hands:
            self.begin_request(admission)
        return admission

    def leave(self, admission: Admission) -> None:
        """The connection is closed. It may be called twice."""
        use = admission.use
        self.end_request(admission)
        if admission in use.admissions:
            before = len(use.admissions)
            del use.admissions[admission]
            self.connections -= 1
            self._recount(use, before)
        else:
            use.health.pop(admission, None)
            self._health.pop(admission, None)
        if not use.admissions and not use.health and self._uses.get(use.key) is use:
            del self._uses[use.key]

    def begin_request(self, admission: Admission) -> bool:
        """A request has begun and is not complete. False if its address has too many of them."""
        if admission.is_unfinished:
            return True
        use = admission.use
        if use.has_share and use.unfinished >= self._max_unfinished:
            self.refused[Refusal.UNFINISHED] += 1
            return False
        admission.is_unfinished = True
        use.unfinished += 1
        return True

    def end_request(self, admission: Admission) -> None:
        """The request is complete, or given up."""
        if admission.is_unfinished:
            admission.is_unfinished = False
            admission.use.unfinished -= 1

    def _recount(self, use: AddressUse, before: int) -> None:
        """Keep the addresses in order after a change by one."""
        now = len(use.admissions)
        if before:
            some = self._by_count[before]
            del some[use]
            if not some:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, {})[use] = None
        if now > self._most or (before == self._most and before not in self._by_count):
            self._most = now

    def _make_room(self, newcomer: AddressUse) -> bool:
        """Close an idle connection of the address that has the most, unless the newcomer's address would then have as
        many. Returns whether one was closed."""
        if len(newcomer.admissions) + 1 >= self._most:
            return False
        use = next(iter(self._by_count[self._most]))
        victim: Admission | None = None
        oldest_s = 0.0
        for admission in list(islice(use.admissions, LOOKED_AT)):
            since_s = admission.client.idle_since_s
            if since_s is None:  # look at others next time
                del use.admissions[admission]
                use.admissions[admission] = None
            elif victim is None or since_s < oldest_s:
                victim, oldest_s = admission, since_s
        if victim is None:
            return False
        self.refused[Refusal.ALL] += 1
        self.leave(victim)
        victim.client.close()
        return True

    def _keep_for_health(self, use: AddressUse, client: Client, refusal: Refusal) -> Admission:
        self.refused[refusal] += 1
        too_many = use.health if len(use.health) >= KEPT_PER_ADDRESS else self._health
        if too_many is use.health or len(too_many) >= KEPT_FOR_HEALTH:
            oldest = next(iter(too_many))
            self.leave(oldest)
            oldest.client.close()
            self._uses[use.key] = use  # `leave` forgets an address without connections
        admission = Admission(use, client, refusal)
        use.health[admission] = self._health[admission] = None
        return admission


def address_key(host: str) -> str:
    """What a client is counted by: its IPv4 address, or the /64 of its IPv6 address."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
