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

_HEAD = """# Reference of the Python worker

Made from the code by `make docs`. The [guide](worker.md) comes first. What a send can say and what comes back is in the
[client's reference](python-reference.md).

Every name is imported from `dueline.worker` (`Worker` from `dueline` too), those of an application of the Spring queue
from `dueline.worker.service`.
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
A middleware is `async def middleware(context, call_next)`: it calls `await call_next(context)` and gets the verdict.
What it returns counts; when it returns nothing, what it was given counts. An exception is a failure of the job.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, kinds in SHOWN.items():
        parts.append(f"\n## {title}\n")
        parts += [_MIDDLEWARE] if title == "Middleware" else []
        parts += [a_function(connect)] if title == "Queues" else []
        parts += [a_class(kind, INSIDE.get(kind, ()), Api, made=kind not in GIVEN) for kind in kinds]
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
