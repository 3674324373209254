"""EXFE's queue service over HTTP: what is pushed under one key is called back together when its time comes."""

from .dialect import ExfeDialect
from .options import ExfeOptions

__all__ = ["ExfeDialect", "ExfeOptions"]
