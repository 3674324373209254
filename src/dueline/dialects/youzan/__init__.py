"""The Youzan-style protocol: one JSON object per request, whose `command` names the operation."""

from .dialect import YouzanDialect
from .options import YouzanOptions

__all__ = ["YouzanDialect", "YouzanOptions"]
