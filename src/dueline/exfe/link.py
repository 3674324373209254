"""The link to the Redis: connections, scripts, and the meaning of failures.

Nothing is retried automatically: a push whose answer was lost may have been done, and a second one would add the task
twice. A failure before the first byte is sent is `StoreDown` (nothing was done); a later one is `UnknownOutcome`, and
the caller decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError
from redis.retry import Retry

from dueline.engine.errors import Loading, StoreDown, StoreFull, UnknownOutcome

from .errors import Invalid

ACTIONS = ("push", "get", "complete", "release", "schedule")
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0
LOST: Final = (redis.ConnectionError, redis.TimeoutError, OSError)
ONE_NODE = (
    "the keys of the original cannot be divided over the slots of a Cluster, and a failover by Sentinel is not "
    "followed: give the address of one node, as redis://"
)

Word = str | bytes | int


class Link:
    """A pool of connections to one Redis. Safe to share between threads."""

    def __init__(self, url: str) -> None:
        options: dict[str, Any] = {
            "socket_timeout": ANSWER_TIMEOUT_S,
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        if url.partition("://")[0].endswith(("+cluster", "+sentinel")):
            raise Invalid(f"invalid url: {ONE_NODE}", "url")
        spelled = "redis" + url.removeprefix("valkey") if url.startswith(("valkey://", "valkeys://")) else url
        try:
            self._pool = redis.ConnectionPool.from_url(spelled, **options)
        except ValueError as error:
            raise Invalid(f"invalid url: {error}", "url") from error
        self._sources = {name: _source_of(name) for name in ACTIONS}
        self._shas = {name: hashlib.sha1(source.encode()).hexdigest() for name, source in self._sources.items()}

    def connection(self) -> redis.Connection:
        """An open, idle connection; return it with `give_back`. Raises StoreDown or Loading."""
        try:
            return self._pool.get_connection()
        except redis.BusyLoadingError as error:
            raise Loading() from error
        except LOST as error:
            raise StoreDown(f"the store cannot be reached, nothing was done: {error}") from error

    def give_back(self, connection: redis.Connection) -> None:
        self._pool.release(connection)

    def run(self, action: str, keys: Sequence[str], arguments: Sequence[Word]) -> Any:
        """Run one action as one script call. If the store does not know the script, it is sent in full."""
        words = (len(keys), *keys, *arguments)
        try:
            return self.command("EVALSHA", self._shas[action], *words)
        except NoScriptError:
            return self.command("EVAL", self._sources[action], *words)

    def command(self, *words: Word) -> Any:
        """One command, sent once."""
        connection = self.connection()
        try:
            connection.send_command(*(_bytes(word) for word in words))
            return connection.read_response()
        except redis.BusyLoadingError as error:
            raise Loading() from error
        except ReadOnlyError as error:
            connection.disconnect()  # the primary has moved; the next call reconnects
            raise StoreDown("the store is a replica, nothing was done") from error
        except OutOfMemoryError as error:
            raise StoreFull() from error
        except LOST as error:
            raise UnknownOutcome(f"no answer from the store, the action may have been done: {error}") from error
        finally:
            self.give_back(connection)

    def close(self) -> None:
        self._pool.disconnect()


def _bytes(word: Word) -> bytes | int:
    """Text as UTF-8; bytes that were not UTF-8 when they were read are restored unchanged."""
    return word.encode("utf-8", "surrogateescape") if isinstance(word, str) else word


def _source_of(action: str) -> str:
    return resources.files("dueline.exfe").joinpath("lua", f"{action}.lua").read_text(encoding="utf-8")
