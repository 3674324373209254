"""EXFE's Redis actions (push, get, complete, release, schedule, wait) on the documented objects of one Redis.

This is a separate library. It needs a Redis or Valkey, not a Dueline server, and shares nothing with Dueline's store.
Clients of the original may use the same Redis at the same time; `docs/dialects/exfe-redis.md` lists the differences and
the reasons for them.
"""

try:
    import redis as _redis
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("dueline.exfe needs redis-py: pip install 'dueline[server]'", name="redis") from error

from .errors import Invalid, Locked
from .objects import Objects
from .queue import ExfeQueue

del _redis

__all__ = ["ExfeQueue", "Invalid", "Locked", "Objects"]
