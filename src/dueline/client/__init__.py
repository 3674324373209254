"""The HTTP client: `calls` (pure) builds and reads, `client` moves the bytes. No server or store package is needed."""

from .calls import Answer, Call, Lease, NewJob, json_body, new_id
from .client import Client
from .errors import DuelineApiError
from .retry import Retry

__all__ = ["Answer", "Call", "Client", "DuelineApiError", "Lease", "NewJob", "Retry", "json_body", "new_id"]
