"""Who asks: a value of its own for each connection, set while one of its requests is worked on.

Queues that all callers share (store/valkey/batching) use it to give each of them its part. None: the server itself.
"""

from __future__ import annotations

from contextvars import ContextVar

CALLER: ContextVar[object] = ContextVar("caller", default=None)
