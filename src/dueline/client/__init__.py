"""The HTTP client: `api` says what can be asked, `calls` builds and reads (both pure), two shells move the bytes.

No server or store package is needed. AsyncClient is imported when it is first asked for, and asyncio with it.
"""

from typing import TYPE_CHECKING, Any

from .calls import Answer, Call, Lease, Leased, NewJob, json_body, new_id
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
