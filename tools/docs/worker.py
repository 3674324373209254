"""The reference of the Python worker, made from signatures and docstrings: `python -m tools.docs.worker`."""

from __future__ import annotations

from typing import Any

from dueline.client.api import Api
from dueline.worker.context import Context
from dueline.worker.handle import Handle
from dueline.worker.outcomes import Discard, Ending, Retry, Snooze, Verdict
from dueline.worker.queue import Queue, connect
from dueline.worker.service import SpringService, SubmitFailed
from dueline.worker.sync import SyncQueue
from dueline.worker.tasks import TaskWorker
from dueline.worker.worker import Worker
from tools.docs.reference import a_class, a_function
from tools.docs.wrap import wrapped

_HEAD = """# Reference of the Python worker

Generated from the code by `make docs`. The [guide](worker.md) comes first. The options of a send and its results are
in the [client's reference](python-reference.md).

Every name is imported from `dueline.worker`; `Worker` is in `dueline` too, and the names for an application of the
Spring queue are in `dueline.worker.service`.
"""

SHOWN: dict[str, tuple[type[Any], ...]] = {
    "Workers and handlers": (Worker, Handle, Context, TaskWorker),
    "Outcomes": (Retry, Snooze, Discard),
    "Middleware": (Verdict, Ending),
    "Queues": (SyncQueue, Queue),
    "An application of the Spring queue": (SpringService, SubmitFailed),
}
GIVEN = (Handle, Context, Queue, SubmitFailed)  # programs receive these and do not create them
INSIDE: dict[type[Any], tuple[str, ...]] = {
    Worker: ("do", "ado", "join_queue", "live_in", "on_stop", "show_health"),
    SyncQueue: ("do", "submit"),
}
_MIDDLEWARE = """
A middleware is `async def middleware(context, call_next)`. It awaits `call_next(context)`, which returns the verdict.
The verdict that the middleware returns applies; if it returns None, the one it received applies. If it raises, the job
fails.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, kinds in SHOWN.items():
        parts.append(f"\n## {title}\n")
        parts += [_MIDDLEWARE] if title == "Middleware" else []
        parts += [a_function(connect)] if title == "Queues" else []
        parts += [a_class(kind, INSIDE.get(kind, ()), Api, made=kind not in GIVEN) for kind in kinds]
    return wrapped("".join(parts))


if __name__ == "__main__":
    print(page(), end="")
