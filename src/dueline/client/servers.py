"""The servers that a client may use, and which of them it uses now. No I/O except a log line.

All servers of one store are equal, so a client needs one that answers. Sync and async clients share these rules:

- Each client puts the addresses into a random order of its own, so that many clients spread over the servers. It stays
  with the first one as long as it answers.
- When a server does not answer, or answers that it is unavailable (503: draining, loading, store_down), the client
  moves to the next address. The call is repeated there at once, with the same id (`patience`). Later calls begin there,
  so a dead server costs a timeout only to the calls that were waiting for it.
- After RETURN_S without another failure the client goes back to its first address. Otherwise, after a rolling restart,
  the server that was restarted last would have no clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import sample

from .address import Address, addresses_of, log
from .errors import DuelineApiError, Unavailable

RETURN_S = 60.0
CONNECT_S = 2.0  # for a connection to one of several addresses: the next one may answer sooner

Order = Callable[[Sequence[Address]], Sequence[Address]]


def random_order(addresses: Sequence[Address]) -> Sequence[Address]:
    return sample(addresses, len(addresses))


class Servers:
    """The addresses of equal servers. The caller passes in the time of a monotonic clock."""

    def __init__(self, addresses: Sequence[Address], order: Order = random_order) -> None:
        self.url = ",".join(address.url for address in addresses)
        self.namespace = addresses[0].namespace
        self.count = len(addresses)
        self._order = tuple(order(addresses))
        self._current = self._order[0]
        self._return_s = 0.0

    def current(self, now_s: float) -> Address:
        """The address for the next try."""
        if self._current is not self._order[0] and now_s >= self._return_s:
            self._current = self._order[0]
        return self._current

    def failed(self, address: Address, error: DuelineApiError, now_s: float) -> None:
        """A try at this address failed: move on if the reason is the server. Threads may report the same failure."""
        if self.count == 1 or address is not self._current or not isinstance(error, Unavailable):
            return
        following = self._order[(self._order.index(address) + 1) % self.count]
        self._return_s = now_s + RETURN_S
        self._current = following
        log.warning("%s; continuing with %s", error, following.url)

    def connect_s(self, timeout_s: float) -> float:
        """How long a try may take to connect, if it may take `timeout_s` as a whole."""
        return timeout_s if self.count == 1 else min(timeout_s, CONNECT_S)


def servers_of(url: str | None = None, namespace: str | None = None, token: str | None = None) -> Servers:
    """The servers from the arguments, else the environment, else the default. Raises ValueError with the reason."""
    return Servers(addresses_of(url, namespace, token))
