"""Copies of a store's keys, to put an older state back: what a restored backup or a stale replica has."""

from __future__ import annotations

import redis

from .valkey import PrivateValkey


class Copy:
    """Everything under a prefix, as it was when this was made."""

    def __init__(self, server: PrivateValkey, prefix: str) -> None:
        self._url = server.url
        self._prefix = prefix
        self._keys = {key: self._dumped(key) for key in self._present()}

    def _present(self) -> list[bytes]:
        with redis.Redis.from_url(self._url) as client:
            return list(client.scan_iter(f"{self._prefix}:*", count=1000))

    def _dumped(self, key: bytes) -> bytes:
        with redis.Redis.from_url(self._url) as client:
            return client.dump(key) or b""

    def put_back(self) -> None:
        """The store has this state again, and nothing newer."""
        with redis.Redis.from_url(self._url) as client:
            erase(self._url, self._prefix)
            for key, value in self._keys.items():
                client.restore(key, 0, value, replace=True)


def erase(url: str, prefix: str) -> None:
    """As FLUSHALL does, for one test's share of a server."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{prefix}:*", count=1000):
            client.delete(key)
