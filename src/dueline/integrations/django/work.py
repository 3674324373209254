"""Workers of a Django project, and sends that wait for the transaction."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Unpack

from django.db import close_old_connections, transaction

from ...client.sending import SendOptions
from ...worker import Handle
from ..contexts import ContextWorker
from .settings import current


class DjangoWorker(ContextWorker):
    """A Worker on the queue that DUELINE names. Before and after each handler, in its own thread, broken and expired
    database connections are closed, as Django does around a request."""

    def __init__(self, **options: Any) -> None:
        """`options`: those of a Worker. `url`, `namespace` and `token` take precedence over the settings."""
        now = current()
        place = {"url": now.url, "namespace": now.namespace, "token": now.token}
        super().__init__(_fresh_connections, **{**place, **options})


@contextmanager
def _fresh_connections() -> Generator[None]:
    close_old_connections()  # keeps those in a transaction, because a test may run handlers inside its own
    try:
        yield
    finally:
        close_old_connections()


def send_on_commit(
    handle: Handle[..., Any], body: Any = None, *, using: str | None = None, **options: Unpack[SendOptions]
) -> None:
    """Send a job when the transaction of the database `using` is committed; at once when there is none.

    A rollback sends nothing. A crash between commit and send loses the job. If it must not be lost, send it with an id
    before the commit, and let its handler check the database first."""
    transaction.on_commit(lambda: handle.send(body, **options), using=using)
