"""The Python worker: it runs handlers for due jobs from a server, a store or an embedded store.

from dueline import Worker

worker = Worker("http://127.0.0.1:9277")

@worker.handles("greetings")
async def greet(name: str) -> None:
    print("hello", name)

greet.send("ann", delay="10s")
worker.run()
"""

from .context import Context
from .handle import Handle
from .outcomes import Discard, Ending, Retry, Snooze, Verdict
from .queue import Queue, connect
from .runner import CallNext, Middleware
from .sync import SyncQueue
from .tasks import TaskWorker
from .worker import Worker

__all__ = [
    "CallNext",
    "Context",
    "Discard",
    "Ending",
    "Handle",
    "Middleware",
    "Queue",
    "Retry",
    "Snooze",
    "SyncQueue",
    "TaskWorker",
    "Verdict",
    "Worker",
    "connect",
]
