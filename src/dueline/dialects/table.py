"""The table of dialects. Nothing else outside a dialect's package names it.

Settings, docs, the ready line and a server's routes are in this order. No I/O, and no handlers are loaded.
"""

from __future__ import annotations

from . import camellia, exfe, native, ouqiang, spring, youzan
from .spec import DialectSpec

DIALECTS: tuple[DialectSpec, ...] = (
    native.SPEC,
    camellia.SPEC,
    ouqiang.SPEC,
    youzan.SPEC,
    spring.SPEC,
    exfe.SPEC,
)
