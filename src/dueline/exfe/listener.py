"""One worker's subscription to the push channel.

The worker subscribes before its first look at the timer, and stays subscribed. A push between the look and the wait is
then buffered in the socket and not lost. The original subscribes inside Wait and can miss such a push.
"""

from __future__ import annotations

import redis

from dueline.engine.errors import StoreDown

from .link import LOST, Link

DRAIN_AT_MOST = 10_000  # a flood of pushes must not keep a worker reading; the rest only wakes it once more


class Listener:
    """Belongs to one thread. Call `listen` before looking at the timer; `heard` waits for a push since then."""

    def __init__(self, link: Link, channel: str) -> None:
        self._link = link
        self._channel = channel
        self._connection: redis.Connection | None = None

    def listen(self) -> None:
        """Subscribe if needed, and drop the messages received so far. Raises StoreDown or Loading."""
        if self._connection is not None:
            try:
                self._read(self._connection, 0)
                return
            except LOST:
                self.close()
        self._connection = self._subscribe()

    def heard(self, timeout_s: float) -> bool:
        """True at the first message since `listen`, or if the connection broke and a message may have been missed.
        False after `timeout_s`."""
        if self._connection is None:
            self._connection = self._subscribe()
        try:
            return self._read(self._connection, timeout_s)
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
            connection.read_response()  # pushes are received only after the confirmation
        except LOST as error:
            self._drop(connection)
            raise StoreDown(f"cannot subscribe to the push channel: {error}") from error
        except BaseException:
            self._drop(connection)
            raise
        return connection

    def _drop(self, connection: redis.Connection) -> None:
        connection.disconnect()  # a subscribed connection must not serve commands
        self._link.give_back(connection)

    def _read(self, connection: redis.Connection, timeout_s: float) -> bool:
        if not connection.can_read(timeout_s):
            return False
        for _ in range(DRAIN_AT_MOST):
            connection.read_response()
            if not connection.can_read(0):
                break
        return True
