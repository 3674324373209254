"""Dueline: a durable delay queue. `import dueline` needs neither the server's nor the store's dependencies.

    from dueline import AsyncClient, Client, Worker

    with Client("http://127.0.0.1:9277") as client:
        client.send("orders.close", {"order": 7}, delay="30m")

Every name below is imported on first use, so `import dueline` is cheap and a program that only sends never loads the
worker.
"""

from ._version import __version__

TYPE_CHECKING = False  # type checkers treat it like typing's; importing typing would cost more than all the rest
if TYPE_CHECKING:
    from .api.answers import Job, LeasedJob, Outcome, Sent, SentItem, Topic
    from .api.requests import NewJob
    from .client.async_client import AsyncClient
    from .client.calls import Leased
    from .client.client import Client
    from .client.errors import (
        AlreadyDone,
        Conflict,
        DuelineApiError,
        IdExists,
        InvalidRequest,
        JobLeased,
        LeaseLost,
        NotAllowed,
        NotFound,
        RateLimited,
        ServerFault,
        StoreFull,
        Unavailable,
        UnknownOutcome,
        Unreachable,
        VersionMismatch,
    )
    from .client.patience import Patience
    from .client.sending import new_job
    from .worker.worker import Worker

__all__ = [
    "AlreadyDone",
    "AsyncClient",
    "Client",
    "Conflict",
    "DuelineApiError",
    "IdExists",
    "InvalidRequest",
    "Job",
    "JobLeased",
    "LeaseLost",
    "Leased",
    "LeasedJob",
    "NewJob",
    "NotAllowed",
    "NotFound",
    "Outcome",
    "Patience",
    "RateLimited",
    "Sent",
    "SentItem",
    "ServerFault",
    "StoreFull",
    "Topic",
    "Unavailable",
    "UnknownOutcome",
    "Unreachable",
    "VersionMismatch",
    "Worker",
    "__version__",
    "new_job",
]

_MODULES = {
    "api.answers": ("LeasedJob", "Job", "Outcome", "Sent", "SentItem", "Topic"),
    "api.requests": ("NewJob",),
    "client.async_client": ("AsyncClient",),
    "client.client": ("Client",),
    "client.calls": ("Leased",),
    "client.patience": ("Patience",),
    "client.sending": ("new_job",),
    "worker.worker": ("Worker",),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = next((module for module, names in _MODULES.items() if name in names), "client.errors")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
