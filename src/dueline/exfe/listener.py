"""One worker's ear on the push channel.

The subscription is made before a worker's first look at the timer and kept: what is pushed between its look and its
wait is then waiting in the socket, not lost. The original subscribes inside Wait and can sleep over such a push.
"""

from __future__ import annotations

import redis

from dueline.engine.errors import StoreDown

from .link import LOST, Link

DRAIN_AT_MOST = 10_000  # a flood of pushes must not keep a worker reading; what is left only wakes it once more


class Listener:
    """Belongs to one thread. `listen` before a look at the timer, then `heard` waits for news since that look."""

    def __init__(self, link: Link, channel: str) -> None:
        self._link = link
        self._channel = channel
        self._connection: redis.Connection | None = None

    def listen(self) -> None:
        """Subscribed from here on; what was said before is forgotten. Raises StoreDown or Loading."""
        if self._connection is not None:
            try:
                self._said(self._connection, 0)
                return
            except LOST:
                self.close()
        self._connection = self._subscribe()

    def heard(self, timeout_s: float) -> bool:
        """True at the first word since `listen`, or when the line broke and a word may have been missed."""
        if self._connection is None:
            self._connection = self._subscribe()
        try:
            return self._said(self._connection, timeout_s)
        except LOST:
            self.close()
            return True

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._drop(connection)

    def _subscribe(self) -> redis.Connection:
        connection = self._link.connection()
        try:
            connection.send_command("SUBSCRIBE", self._channel)
            connection.read_response()  # only the confirmation says that later pushes are heard
        except LOST as error:
            self._drop(connection)
            raise StoreDown(f"the push channel cannot be heard: {error}") from error
        except BaseException:
            self._drop(connection)
            raise
        return connection

    def _drop(self, connection: redis.Connection) -> None:
        connection.disconnect()  # a subscribed connection must not serve commands
        self._link.give_back(connection)

    def _said(self, connection: redis.Connection, timeout_s: float) -> bool:
        if not connection.can_read(timeout_s):
            return False
        for _ in range(DRAIN_AT_MOST):
            connection.read_response()
            if not connection.can_read(0):
                break
        return True
