"""The protocol of camellia-delay-queue. The server creates a `CamelliaDialect`."""

from .dialect import CamelliaDialect
from .monitor import Counts, Report
from .options import CamelliaOptions
from .pages import Node

__all__ = ["CamelliaDialect", "CamelliaOptions", "Counts", "Node", "Report"]
