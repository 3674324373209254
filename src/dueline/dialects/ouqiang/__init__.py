"""The protocol of ouqiang/delay-queue: five paths, any verb, always HTTP 200."""

from .dialect import OuqiangDialect
from .options import OuqiangOptions

__all__ = ["OuqiangDialect", "OuqiangOptions"]
