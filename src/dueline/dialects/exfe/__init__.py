"""EXFE's queue service over HTTP: items pushed under one key are delivered together, in one callback, when due."""

from .dialect import ExfeDialect
from .options import ExfeOptions

__all__ = ["ExfeDialect", "ExfeOptions"]
