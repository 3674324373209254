"""The Youzan-style protocol: one JSON object per request, the operation is its `command`."""

from .dialect import YouzanDialect
from .options import YouzanOptions

__all__ = ["YouzanDialect", "YouzanOptions"]
