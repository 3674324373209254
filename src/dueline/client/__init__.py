"""The HTTP client: `api` defines the methods, `calls` the requests and answers (both pure), two clients do the I/O.

It needs no server or store package. AsyncClient, and asyncio with it, is imported on first use.
"""

from typing import TYPE_CHECKING, Any

from ..api.requests import Lease, NewJob
from .calls import Answer, Call, Leased, json_body, new_id
from .client import Client
from .errors import DuelineApiError
from .patience import Patience
from .sending import new_job

if TYPE_CHECKING:
    from .async_client import AsyncClient

__all__ = [
    "Answer",
    "AsyncClient",
    "Call",
    "Client",
    "DuelineApiError",
    "Lease",
    "Leased",
    "NewJob",
    "Patience",
    "json_body",
    "new_id",
    "new_job",
]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from .async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
